package servers

import "testing"

// An address of the service may contain settings of its pool, which PostgreSQL does not know.
func TestSettingsOfAPoolAreNotSent(t *testing.T) {
	t.Parallel()
	config, err := PostgresConfig("postgres://u@h/d?pool_max_conns=1&search_path=x")
	if err != nil {
		t.Fatal(err)
	}
	if _, sent := config.RuntimeParams["pool_max_conns"]; sent || config.RuntimeParams["search_path"] != "x" {
		t.Errorf("it would send %v", config.RuntimeParams)
	}
}
