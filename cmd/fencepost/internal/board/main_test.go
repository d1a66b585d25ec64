package board_test

import (
	"testing"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	testenv.Main(m)
}
