package history_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// What a killed process was doing is known as begun and not as ended, also if it was killed in the middle of a line.
func TestAnOperationThatWasCutOffIsUncertain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "worker.jsonl")
	r, err := history.NewRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	done, cut := &history.Op{ID: "0.0.0.1", Kind: history.Put}, &history.Op{ID: "0.0.0.2", Kind: history.Put}
	for _, step := range []func() error{
		func() error { return r.Begin(done) },
		func() error { done.Outcome = history.OK; return r.End(done) },
		func() error { return r.Begin(cut) },
		r.Close,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(content, `{"id":"0.0.0.3","ki`...), 0o600); err != nil {
		t.Fatal(err)
	}
	ops, err := history.ReadOps(path)
	if err != nil || len(ops) != 2 {
		t.Fatalf("%+v, %v", ops, err)
	}
	if ops[0].Uncertain() || ops[0].Returned < ops[0].Invoked || !ops[1].Uncertain() {
		t.Errorf("%+v", ops)
	}
}
