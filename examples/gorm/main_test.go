package main

import (
	"database/sql"
	"errors"
	"slices"
	"testing"

	_ "github.com/lib/pq" // the driver "postgres"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The story, on a database without fencepost.
func TestTheOvertakenWorkerIsRefused(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	var said []string
	if err := run(t.Context(), url, testenv.RedisURL(t), func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"first worker: deposited 10",
		"second worker: took over, deposited 5",
		"first worker: refused as stale",
	}
	if !slices.Equal(said, want) {
		t.Errorf("it said %q", said)
	}
	var balance, tok int64
	err := testenv.PoolOn(t, url).
		QueryRow(t.Context(), `SELECT balance, last_fencing_token FROM shop.account WHERE id = 1`).
		Scan(&balance, &tok)
	if err != nil || balance != 15 || tok != 2 {
		t.Errorf("the balance is %d, stamped with %d, %v", balance, tok, err)
	}
}

// openGORM opens a prepared database through one of database/sql's drivers.
func openGORM(t *testing.T, driver string) *gorm.DB {
	t.Helper()
	conn, err := sql.Open(driver, testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := prepare(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	// TranslateError changes the errors that GORM returns.
	config := &gorm.Config{Logger: logger.Discard, TranslateError: true}
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: conn}), config)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// With either driver, the SQLSTATE in GORM's error identifies the refusal. What the overtaken worker did in its
// transaction is rolled back even if the worker ignores that error.
func TestARefusalIsKnownByItsSQLSTATE(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := openGORM(t, driver)
			conn, err := db.DB()
			if err != nil {
				t.Fatal(err)
			}
			a := fence.Claim{Resource: "examples:account:1", Token: 1, Nonce: token.NewNonce()}
			b := fence.Claim{Resource: "examples:account:1", Token: 2, Nonce: token.NewNonce()}
			for _, c := range []fence.Claim{a, b} {
				if err := fence.RaiseSQL(t.Context(), conn, c, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := deposit(t.Context(), db, b, 1); err != nil {
				t.Fatal(err)
			}
			var stale *fence.StaleError
			if err := deposit(t.Context(), db, a, 1); !errors.As(err, &stale) || stale.Token != 1 || stale.Current != 2 {
				t.Errorf("got %v", err)
			}
			tx := db.WithContext(t.Context()).Begin()
			err = tx.Exec(`SELECT fencepost.enter(?, ?, ?)`, a.Resource, int64(a.Token), a.Nonce.Hex()).Error
			var state interface{ SQLState() string }
			if !errors.As(err, &state) || state.SQLState() != "ZF001" {
				t.Errorf("got %v", err)
			}
			tx.Exec(`UPDATE shop.account SET balance = 100`)
			if err := fence.CommitError(t.Context(), tx.Commit().Error); err == nil {
				t.Error("the refused transaction is said to be committed")
			}
			var account Account
			if err := db.WithContext(t.Context()).First(&account, 1).Error; err != nil || account.Balance != 1 {
				t.Errorf("the row is %+v, %v", account, err)
			}
		})
	}
}

// EnterSQL also accepts GORM's transaction.
func TestEnterSQLInAGORMTransaction(t *testing.T) {
	t.Parallel()
	db := openGORM(t, "pgx")
	err := db.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
		guardable, ok := tx.Statement.ConnPool.(fence.SQLTx)
		if !ok {
			t.Fatalf("%T is no transaction", tx.Statement.ConnPool)
		}
		return fence.EnterSQL(t.Context(), guardable, fence.Claim{Resource: "r", Token: 1, Nonce: token.NewNonce()})
	})
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v", err)
	}
}

// The protection also refuses GORM code that enters nothing. The control removes the protection.
func TestTheProtectionRefusesGORMWithoutAClaim(t *testing.T) {
	t.Parallel()
	db := openGORM(t, "pgx").WithContext(t.Context())
	err := db.Create(&Account{ID: 1, Balance: 100}).Error
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "ZF004" ||
		!errors.Is(fence.GuardError(t.Context(), err), fence.ErrStale) {
		t.Errorf("got %v", err)
	}
	var accounts int64
	if err := db.Model(&Account{}).Count(&accounts).Error; err != nil || accounts != 0 {
		t.Errorf("there are %d accounts, %v", accounts, err)
	}
	if err := db.Exec(`SELECT fencepost.unprotect('shop.account')`).Error; err != nil {
		t.Fatal(err)
	}
	if err := db.Create(&Account{ID: 1, Balance: 100}).Error; err != nil {
		t.Errorf("the control: %v", err)
	}
}
