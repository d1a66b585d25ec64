-- name: OpenAccount :exec
INSERT INTO shop.account (id, balance) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING;

-- name: Balance :one
SELECT balance FROM shop.account WHERE id = $1;

-- name: Deposit :one
UPDATE shop.account SET balance = balance + sqlc.arg(amount)::bigint WHERE id = sqlc.arg(id) RETURNING balance;
