// Package testenv gives tests real servers: a database of its own with
// fencepost's migrations, a key prefix of its own, and servers that may be hurt.
//
// A test binary uses it by one line:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// PostgreSQL and Redis are found or started by internal/services when the first
// test asks, and serve all tests of the binary. Where there are none the test
// skips and says why, except under CI=true, where it fails.
//
// Main prints how many tests asked for a server. With FENCEPOST_TEST_REPORT
// naming a file it also appends a line "package count services" there, since go
// test hides what passing binaries print.
package testenv
