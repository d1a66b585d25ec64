package faults

// TB is the part of testing.TB that this package needs. The package is also part of the command, which must not import
// package testing.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// NewProxy is [Start] for a test. The proxy is closed, with all its connections, when the test
// ends.
func NewProxy(tb TB, upstream string) *Proxy {
	tb.Helper()
	p, err := Start(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// URL is Through for a test.
func (p *Proxy) URL(tb TB, address string) string {
	tb.Helper()
	through, err := p.Through(address)
	if err != nil {
		tb.Fatal(err)
	}
	return through
}
