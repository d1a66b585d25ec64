package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// explained gives an error of the database its exit status, and says which command mends it if one does. A pipeline
// that checks something must be able to tell a server that did not answer from an answer that it does not like.
func explained(err error) error {
	var notConnected *pgconn.ConnectError
	if errors.As(err, &notConnected) {
		return &statusError{exitUnavailable, err}
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) || !strings.Contains(server.Message, "fencepost") {
		return err
	}
	switch server.Code {
	case "3F000", "42P01", "42883": // a schema, table or function does not exist
		return &statusError{exitUnavailable, fmt.Errorf(
			"%w: the migrations are missing, or are older than this program: run \"fencepost migrate up\"", err)}
	}
	return err
}
