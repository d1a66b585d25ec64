//go:build unix

package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// browse asks for a page.
func browse(t *testing.T, url string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// healthy waits until the first look has been shown.
func healthy(t *testing.T, url string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, text := browse(t, url+"healthz")
		if status == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not healthy: %d %s", status, text)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// However many browsers ask, the servers are looked at once per interval.
func TestServe(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l := p.acquire("<script>alert(1)</script>", "host-a/1")
	w := begin(t, p.with("serve --listen 127.0.0.1:0 --interval 1h --json")...)
	var at struct{ URL string }
	if err := json.Unmarshal([]byte(w.line()), &at); err != nil {
		t.Fatal(err)
	}
	healthy(t, at.URL)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			status, text := browse(t, at.URL)
			if status != 200 || !strings.Contains(text, "&lt;script&gt;alert(1)") || strings.Contains(text, "<script>alert") ||
				strings.Contains(text, l.Claim().Nonce.Hex()) || !strings.Contains(text, "host-a/1") {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	all.Wait()
	if _, text := browse(t, at.URL+"metrics"); !strings.Contains(
		text,
		`fencepost_site_looks_total{namespace="`+p.namespace+`"} 1`,
	) ||
		!strings.Contains(text, `fencepost_site_lease_held{namespace="`+p.namespace+`"} 1`) {
		t.Errorf("after 100 requests: %s", text)
	}
	if _, text := browse(t, at.URL+"board.json"); !strings.Contains(text, `"holder":"host-a/1"`) {
		t.Errorf("JSON: %s", text)
	}
	w.cancel()
	if got := w.result(); got.status != 0 || got.errOut != "" {
		t.Errorf("%+v", got)
	}
	if status, _ := browse(t, at.URL); status != 0 {
		t.Errorf("it still answers: %d", status)
	}
}

func TestServeEndsOnSIGTERM(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd, errOut, _ := p.start(p.with("serve --listen localhost:0")...)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || errOut.Len() > 0 {
		t.Errorf("%v: %s", err, errOut)
	}
}

// What others could reach must be asked for.
func TestServeIsForThisMachineAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, address := range []string{
		":7443", "0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.com:0", "127.0.0.1", "127.0.0.1.example.com:0", "",
	} {
		if got := run(t, p.with("serve --listen="+address)...); got.status != 2 || got.out != "" {
			t.Errorf("%q: %+v", address, got)
		}
	}
	p.golden("serve_usage", "serve --listen 0.0.0.0:0")
	w := begin(t, p.with("serve --listen 127.0.0.1:0")...)
	_, url, _ := strings.Cut(w.line(), "serves ")
	second := run(t, p.with("serve --listen "+strings.Trim(strings.TrimPrefix(url, "http://"), "/"))...)
	if second.status != 1 || !strings.Contains(second.errOut, "address already in use") {
		t.Errorf("a second one at the same address: %+v", second)
	}
	w.cancel()
	w.result()
	// With the flag it listens. (A test must not listen to others: 127.0.0.1 is still what it is told.)
	w = begin(t, p.with("serve --listen 127.0.0.1:0 --expose")...)
	_, url, _ = strings.Cut(w.line(), "serves ")
	healthy(t, url)
	w.cancel()
	w.result()
}

// An outage is shown, without the password of the address.
func TestServeShowsAnOutage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	own := testenv.OwnRedis(t)
	w := begin(
		t,
		"serve",
		"--listen=127.0.0.1:0",
		"--interval=100ms",
		"--database="+p.database,
		"--redis="+own.URL(),
		"--namespace="+p.namespace,
	)
	_, url, _ := strings.Cut(w.line(), "serves ")
	healthy(t, url)
	if err := own.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, _ := browse(t, url+"healthz")
		if status == http.StatusServiceUnavailable {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the outage is not noticed")
		}
		<-time.After(20 * time.Millisecond)
	}
	if status, text := browse(t, url); status != 200 || !strings.Contains(text, `role="alert"`) ||
		!strings.Contains(text, "No answer since") {
		t.Errorf("%d %s", status, text)
	}
	if err := own.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	healthy(t, url)
	w.cancel()
	w.result()
}
