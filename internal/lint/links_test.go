package lint_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Every relative link in a Markdown file leads to a file or folder of the repository, and every anchor to a heading.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	broken, links := brokenLinks(t, os.DirFS("../.."))
	for _, b := range broken {
		t.Error(b)
	}
	if links < 20 {
		t.Errorf("%d links were found: the test shows too little", links)
	}
}

// The control: it finds each kind of broken link, and no link that resolves.
func TestLinksResolveControl_EachKindOfBrokenLinkIsFound(t *testing.T) {
	t.Parallel()
	page := func(text string) fstest.MapFS {
		return fstest.MapFS{
			"docs/page.md":  {Data: []byte(text)},
			"docs/other.md": {Data: []byte("# A `word`, and more\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n")},
			"main.go":       {Data: []byte("package main\n")},
		}
	}
	for name, text := range map[string]string{
		"a file that does not exist":    "[x](missing.md)",
		"a heading that does not exist": "[x](other.md#missing)",
		"a comment inside code":         "[x](other.md#no-heading)",
		"one repetition too many":       "[x](other.md#twice-2)",
		"a heading of the same file":    "# Here\n\n[x](#there)",
		"a path out of the repository":  "[x](../../README.md)",
		"an anchor into code":           "[x](../main.go#L1)",
		"text that is wrapped":          "[two\nwords](missing.md)",
		"a link that is defined below":  "[x]\n\n[x]: missing.md\n",
	} {
		if broken, _ := brokenLinks(t, page(text)); len(broken) != 1 {
			t.Errorf("%s: found %q", name, broken)
		}
	}
	for name, text := range map[string]string{
		"files, folders and headings": "# Here\n\n[x](other.md) [x](../docs) [x](../main.go) [x](#here) " +
			"[x](other.md#a-word-and-more) [x](other.md#twice-1)\n\n[y]: other.md#twice\n",
		"another site": "[x](https://example.com/missing.md#there) [x](mailto:a@example.com)",
		"code":         "`[x](missing.md)`\n\n```go\nf[x](missing)\n```\n",
	} {
		if broken, _ := brokenLinks(t, page(text)); len(broken) != 0 {
			t.Errorf("%s: %q", name, broken)
		}
	}
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	codeSpan   = regexp.MustCompile("`[^`\n]*`")
	linkTarget = regexp.MustCompile(`\]\(([^()\s]+)\)|(?m:^\[[^\]]+\]:\s+(\S+))`)
	otherSite  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	heading    = regexp.MustCompile(`(?m)^#{1,6}[ \t]+(.+?)[ \t]*$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// brokenLinks returns a line for each relative link of a Markdown file that leads nowhere, and the number of
// relative links.
func brokenLinks(t *testing.T, files fs.FS) (broken []string, links int) {
	t.Helper()
	for _, name := range markdownFiles(t, files) {
		text := codeSpan.ReplaceAllString(withoutBlocks(t, files, name), "")
		for _, m := range linkTarget.FindAllStringSubmatch(text, -1) {
			target := m[1] + m[2]
			if otherSite.MatchString(target) {
				continue
			}
			links++
			if reason := leadsNowhere(t, files, name, target); reason != "" {
				broken = append(broken, fmt.Sprintf("%s links to %s: %s", name, target, reason))
			}
		}
	}
	return broken, links
}

// leadsNowhere says why a link of a page is broken. It returns "" if the link resolves.
func leadsNowhere(t *testing.T, files fs.FS, page, target string) string {
	t.Helper()
	file, anchor, anchored := strings.Cut(target, "#")
	if file == "" {
		file = page
	} else {
		file = path.Join(path.Dir(page), file)
	}
	if _, err := fs.Stat(files, file); err != nil {
		return err.Error()
	}
	if !anchored {
		return ""
	}
	if path.Ext(file) != ".md" {
		return "only headings of Markdown files are anchors"
	}
	if !slices.Contains(anchors(withoutBlocks(t, files, file)), anchor) {
		return "no such heading"
	}
	return ""
}

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(page string) []string {
	var names []string
	seen := make(map[string]int)
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		name := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if n := seen[name]; n > 0 {
			names = append(names, fmt.Sprintf("%s-%d", name, n))
		} else {
			names = append(names, name)
		}
		seen[name]++
	}
	return names
}

func withoutBlocks(t *testing.T, files fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return codeBlock.ReplaceAllString(string(text), "")
}

func markdownFiles(t *testing.T, files fs.FS) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != "." {
			return fs.SkipDir
		}
		if path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
