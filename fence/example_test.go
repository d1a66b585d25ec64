package fence_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// shelf connects to the database of DATABASE_URL and makes a table with one row. An example has nobody to return an
// error to.
func shelf(ctx context.Context) *pgx.Conn {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	_, err = conn.Exec(ctx, `DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop;
		CREATE TABLE shop.shelf (id int PRIMARY KEY, stock int NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0);
		INSERT INTO shop.shelf VALUES (1, 10)`)
	check(err)
	return conn
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A claim raises the fence. Writers with a lower token are refused from then on.
func ExampleEnter() {
	ctx := context.Background()
	conn := shelf(ctx)
	defer func() { _ = conn.Close(ctx) }()

	take := func(c fence.Claim, n int) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := fence.Enter(ctx, tx, c); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE shop.shelf SET stock = stock - $1 WHERE id = 1`, n)
			return err
		})
	}
	nonce := token.NewNonce() // with a lease, its own; here one that the example draws
	first, err := fence.Draw(ctx, conn, "shop:enter", nonce, nil)
	check(err)
	fmt.Println(take(first, 1))
	second, err := fence.Draw(ctx, conn, "shop:enter", token.NewNonce(), nil)
	check(err)

	fmt.Println(errors.Is(take(first, 1), fence.ErrStale))
	fmt.Println(take(second, 1))
	// Output:
	// <nil>
	// true
	// <nil>
}

// A token of your own, such as a version, fences a row by its column alone: older tokens are refused, and so is a
// second write with the same one.
func ExampleUpdate() {
	ctx := context.Background()
	conn := shelf(ctx)
	defer func() { _ = conn.Close(ctx) }()

	table := fence.Table{Schema: "shop", Name: "shelf", Key: []string{"id"}}
	for _, version := range []token.Token{7, 7, 6} {
		err := fence.Update(ctx, conn, table, version, fence.Key{1}, fence.Set{"stock": 5})
		switch {
		case err == nil:
			fmt.Println(version, "written")
		case errors.Is(err, fence.ErrTokenSpent):
			fmt.Println(version, "spent")
		case errors.Is(err, fence.ErrStale):
			fmt.Println(version, "stale")
		}
	}
	// Output:
	// 7 written
	// 7 spent
	// 6 stale
}
