package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/page"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// The blocks of the page.
const (
	blockLibrary = "make bench"
	blockPeers   = "make bench-peers"
)

// pageSuite measures nothing: it writes what was measured into the page. It starts the servers only to name their
// versions.
type pageSuite struct {
	into, library, peers string
}

func (s *pageSuite) flags(f *flag.FlagSet) {
	const files = "the JSON files of runs of %s, separated by commas; of several, the middle one is written"
	f.StringVar(&s.into, "into", "../docs/performance.md", "the page whose tables are replaced")
	f.StringVar(&s.library, "library", "", fmt.Sprintf(files, blockLibrary))
	f.StringVar(&s.peers, "peers", "", fmt.Sprintf(files, blockPeers))
}

func (s *pageSuite) validate() error {
	if s.library == "" && s.peers == "" {
		return errors.New("name files: -library, -peers or both")
	}
	return nil
}

func (s *pageSuite) measure(ctx context.Context, _, _ io.Writer) ([]figure.Figure, error) {
	servers, err := versions(ctx)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(s.into)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	filled := string(text)
	for _, block := range []struct{ name, files string }{{blockLibrary, s.library}, {blockPeers, s.peers}} {
		if block.files == "" {
			continue
		}
		if filled, err = fill(filled, block.name, strings.Split(block.files, ","), servers); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(s.into, []byte(filled), 0o644); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return nil, nil
}

func fill(text, block string, files []string, servers string) (string, error) {
	runs := make([][]figure.Figure, len(files))
	for i, file := range files {
		run, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(run, &runs[i])
		}
		if err != nil {
			return "", fmt.Errorf("read the figures of a run: %w", err)
		}
	}
	figures, err := page.Middle(runs...)
	if err != nil {
		return "", err
	}
	return page.Fill(text, block, header(block, len(files), servers)+"\n"+page.Table(figures))
}

// header says where and how it was measured.
func header(block string, runs int, servers string) string {
	how := "one run"
	if runs > 1 {
		how = fmt.Sprintf("the middle one of %d runs", runs)
	}
	return fmt.Sprintf("`%s BENCH_JSON=FILE`, %s.\n%s; %s.\n", block, how, machine(), servers)
}

func machine() string {
	model := "processor unknown"
	cpus, _ := os.ReadFile("/proc/cpuinfo") // exists only on Linux
	for line := range strings.Lines(string(cpus)) {
		if name, is, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(is)
			break
		}
	}
	return fmt.Sprintf("%d cores (%s), %s/%s, %s",
		runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// versions names the servers, without the places where their programs are.
func versions(ctx context.Context) (_ string, err error) {
	started, err := services.Start(ctx, &services.Options{Durable: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, started.Close()) }()
	postgres, _, _ := strings.Cut(started.Postgres, ",")
	redis, _, _ := strings.Cut(started.Redis, ",")
	return "PostgreSQL " + postgres + ", Redis " + redis, nil
}
