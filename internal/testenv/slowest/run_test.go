package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    a.go:1: hidden\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"--- PASS: TestGood (1.50s)\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":1.5}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestBad/part","Output":"    --- FAIL: TestBad/part (2.00s)\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"--- FAIL: TestBad (2.00s)\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    a.go:2: shown\n"}
{"Action":"fail","Package":"p","Test":"TestBad/part","Elapsed":2}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":2}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t3.500s\n"}
{"Action":"fail","Package":"p","Elapsed":3.5}
{"ImportPath":"q","Action":"build-output","Output":"# q\n"}
go: a line of its own
{"Action":"output","Package":"r","Output":"PASS\n"}
{"Action":"output","Package":"r","Output":"testenv: hidden\n"}
{"Action":"output","Package":"r","Output":"ok  \tr\t0.1s\n"}
{"Action":"pass","Package":"r","Elapsed":0.1}
{"Action":"output","Package":"s","Test":"TestCutOff","Output":"the last words of a test that never ended\n"}
`

func printed(t *testing.T, in string, verbose bool) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(strings.NewReader(in), &out, verbose); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTheOutputOfTestsThatFailIsPrinted(t *testing.T) {
	t.Parallel()
	const want = `    --- FAIL: TestBad/part (2.00s)
--- FAIL: TestBad (2.00s)
    a.go:2: shown
FAIL
FAIL	p	3.500s
# q
go: a line of its own
ok  	r	0.1s
the last words of a test that never ended

the slowest tests:
     2.0 s  p.TestBad
     1.5 s  p.TestGood
`
	if got := printed(t, events, false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestVerboseOutputIsPrintedAsItIs(t *testing.T) {
	t.Parallel()
	if got := printed(
		t,
		events,
		true,
	); !strings.HasPrefix(
		got,
		"=== RUN   TestGood\n    a.go:1: hidden\n--- PASS: TestGood",
	) {
		t.Errorf("got\n%s", got)
	}
}

func TestTenTestsAreNamed(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for i := range 12 {
		_, _ = fmt.Fprintf(&in, `{"Action":"pass","Package":"p","Test":"Test%d","Elapsed":%d}`+"\n", i, i)
	}
	got := printed(t, in.String(), false)
	if strings.Count(got, "p.Test") != 10 || strings.Contains(got, "p.Test1\n") ||
		!strings.Contains(got, "11.0 s  p.Test11\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	if err := run(strings.NewReader(events), full{}, false); !errors.Is(err, errFull) {
		t.Errorf("got error %v, want %v", err, errFull)
	}
}

var errFull = errors.New("full")

// full takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
