package services

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// fewRounds makes PostgreSQL store the password hashed with 1000 rounds of SCRAM instead of its default of 4096. For a
// password that cannot be guessed that is as good, and tests make thousands of connections.
func fewRounds(ctx context.Context, url, password string) error {
	secret, err := scramSecret(password)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, alterPassword(secret)); err != nil {
		return fmt.Errorf("setting the password: %w", err)
	}
	return nil
}

// alterPassword sets the password of the superuser, by what scramSecret returns.
func alterPassword(secret string) string {
	return "ALTER ROLE " + postgresUser + " PASSWORD '" + secret + "'"
}

// scramSecret returns what PostgreSQL stores for a password, in the form of RFC 5803. It contains nothing that needs
// quoting. One round would do, but lib/pq requires a number with four digits.
func scramSecret(password string) (string, error) {
	const rounds = 1000
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hashing the password: %w", err)
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(
		"SCRAM-SHA-256$%d:%s$%s:%s",
		rounds,
		text(salt),
		text(stored[:]),
		text(keyed(salted, "Server Key")),
	), nil
}

func keyed(key []byte, message string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	return h.Sum(nil)
}
