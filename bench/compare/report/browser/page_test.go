package browser_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
)

// file writes a page and returns its address.
func file(t *testing.T, page []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, page, 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// rgb is a colour as browsers tell it.
func rgb(t *testing.T, color string) string {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(color, "#"), 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("rgb(%d, %d, %d)", n>>16, n>>8&0xff, n&0xff)
}

func TestPage(t *testing.T) {
	browser := startBrowser(t)
	var page bytes.Buffer
	if err := report.HTML(&page, sample.Report()); err != nil {
		t.Fatal(err)
	}
	address := file(t, page.Bytes())
	light, dark := report.Light(), report.Dark()
	grounds := map[string]string{"light": rgb(t, light.Page), "dark": rgb(t, dark.Page)}
	for _, s := range screens() {
		t.Run(s.name, func(t *testing.T) {
			found := look(browser, t, address, s)
			for _, fault := range found.Faults {
				t.Error(fault)
			}
			if found.Ground != grounds[s.scheme] {
				t.Errorf("the page is %s, want %s", found.Ground, grounds[s.scheme])
			}
			for _, name := range []string{
				"Lost and duplicated, counter: modes by faults", "Lost and duplicated, hand-off: modes by faults",
				"What each mode costs, without a fault",
				"Rates against each other, in the same run", "Every cell, invoice", "Settings and versions",
			} {
				if !slices.Contains(found.Tables, name) {
					t.Errorf("no table is called %q: %q", name, found.Tables)
				}
			}
			for _, name := range []string{
				"A fence with a post for each mode", "Operations per second, no fault",
				"Time of an operation", "redis-failover", "commit-reply-lost, keyed",
			} {
				if !slices.ContainsFunc(found.Pictures, func(p string) bool { return strings.HasPrefix(p, name) }) {
					t.Errorf("no picture is called %q: %q", name, found.Pictures)
				}
			}
		})
	}
}

// Each kind of defect is found in a page that has it.
func TestFaultsOfAPageAreSeen(t *testing.T) {
	browser := startBrowser(t)
	const bad = `<!DOCTYPE html><html><head><meta name="viewport" content="width=device-width"></head><body>
<h1>One</h1><h3 id="a">Three</h3><p id="a" aria-labelledby="b">Twice</p>
<div style="width:400px">Wide</div>
<div class="scroll"><table><tr><th>Nothing</th><td>1</td></tr><tr><th>Nothing</th><td>2</td></tr></table></div>
<svg role="img" viewBox="0 0 360 20" width="180"><text style="font-size:12px" y="10">small</text></svg>
<img src="http://127.0.0.1:9/picture.png" alt="">
<script>console.error("no"); missing();</script>
</body></html>`
	found := look(browser, t, file(t, []byte(bad)), screens()[0])
	for _, want := range []string{
		"console: error", "exception: ", "request: http://127.0.0.1:9/picture.png", "overflow: the page is 4",
		"small: small at 6.0 px", "language: none",
		"title: none", "heading: Three is of level 3 after 1", "id: a is there twice",
		"label: nothing is b", "scope: Nothing has none",
		"keyboard: a table", "a table without a name", "a picture without a name", "log: ",
	} {
		if !slices.ContainsFunc(found.Faults, func(f string) bool { return strings.HasPrefix(f, want) }) {
			t.Errorf("%q was not seen: %q", want, found.Faults)
		}
	}
}
