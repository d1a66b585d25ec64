// Package testenv gives tests real servers: a database of their own with fencepost's migrations, a key prefix of their
// own, and servers that they may harm.
//
// A test binary uses it with one line:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// PostgreSQL and Redis are found or started by internal/services when the first test asks for one, and serve all tests
// of the binary. If there are none, the test is skipped with the reason, except under CI=true, where it fails. A test
// that needs more than the machine has, such as installed programs when the servers are containers, is skipped, unless
// FENCEPOST_REQUIRE names the way that it needs ("docker,local").
//
// Main prints how many tests asked for a server. If FENCEPOST_TEST_REPORT names a file, Main also appends a line
// "package count services" to it, because go test hides what passing binaries print.
package testenv
