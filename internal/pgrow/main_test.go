package pgrow_test

import (
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.MainOfWaiting(m, 3) }
