package services_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

func cluster(t *testing.T) *services.Cluster {
	t.Helper()
	c, err := services.StartCluster(t.Context(), nil)
	mustBeInstalled(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return c
}

// TestClusterIsOne: all slots are served, replicas follow, and a slot moves with its keys while clients are redirected.
func TestClusterIsOne(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	ctx := t.Context()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer func() { _ = rdb.Close() }()
	const keys = 50
	for i := range keys {
		if err := rdb.Set(ctx, "{r}"+strconv.Itoa(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slot := int(rdb.ClusterKeySlot(ctx, "{r}").Val())
	from, to, err := c.BeginMove(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.MoveKeys(ctx, slot, from, to, keys/2); n != keys/2 || err != nil {
		t.Fatalf("moved %d keys: %v", n, err)
	}
	for i := range keys { // some here, some there
		if got := rdb.Get(ctx, "{r}"+strconv.Itoa(i)); got.Err() != nil || got.Val() != strconv.Itoa(i) {
			t.Fatalf("in the middle of the move: %v", got)
		}
	}
	if err := c.FinishMove(ctx, slot, from, to); err != nil {
		t.Fatal(err)
	}
	now, err := c.Primary(ctx, slot)
	if err != nil || now != to {
		t.Errorf("the slot is at %v, want %v (%v)", now, to, err)
	}
	if n := client(t, to.URL()).ClusterCountKeysInSlot(ctx, slot).Val(); n != keys {
		t.Errorf("%d keys at the new place", n)
	}
}

// TestAHeldBackReplicaLosesWhatCameLater: and nothing that came before.
func TestAHeldBackReplicaLosesWhatCameLater(t *testing.T) {
	t.Parallel()
	s, err := services.StartSentinel(t.Context(), nil)
	mustBeInstalled(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	ctx := t.Context()
	primary, replica := client(t, s.Primary.URL()), client(t, s.Replica.URL())
	if err := primary.Set(ctx, "before", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	do(t, "HoldBack", s.HoldBack)
	if err := primary.Set(ctx, "later", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	do(t, "Kill", s.Primary.Kill)
	do(t, "Promoted", s.Promoted)
	if n := replica.Exists(ctx, "before").Val(); n != 1 {
		t.Error("what came before is lost")
	}
	if n := replica.Exists(ctx, "later").Val(); n != 0 {
		t.Error("the replica was not held back")
	}
	if err := replica.Set(ctx, "now", "1", 0).Err(); err != nil {
		t.Errorf("the new primary takes no writes: %v", err)
	}
}

// topologyEnv makes TestTopologyVictim start servers, print their process ids, and wait to be killed.
const topologyEnv = "FENCEPOST_TEST_TOPOLOGY_VICTIM"

// TestTopologyVictim is the process that TestNoNodeIsLeftBehind kills; by itself it does nothing.
func TestTopologyVictim(t *testing.T) {
	if os.Getenv(topologyEnv) == "" {
		return
	}
	c, err := services.StartCluster(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := services.StartSentinel(t.Context(), nil)
	if err != nil {
		t.Fatal(errors.Join(err, c.Close()))
	}
	pids := []string{"pids"}
	for _, n := range append(append(c.Nodes, s.Primary, s.Replica), s.Sentinels...) {
		pids = append(pids, strconv.Itoa(redisPID(t, n.URL())))
	}
	if _, err := os.Stdout.WriteString(strings.Join(pids, " ") + "\n"); err != nil {
		t.Fatal(err)
	}
	<-context.Background().Done()
}

// TestNoNodeIsLeftBehind: eleven servers end with the process that started them, and their folders with them.
func TestNoNodeIsLeftBehind(t *testing.T) {
	t.Parallel()
	cluster(t) // skips if no cluster can be started
	dir := reachableDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestTopologyVictim$")
	cmd.Env = append(os.Environ(), topologyEnv+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && isEmpty(t, dir) {
		err = errors.New("the servers' folder is elsewhere: the test looks at the wrong one")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	var pids []int
	for field := range strings.FieldsSeq(strings.TrimPrefix(line, "pids")) {
		pids = append(pids, number(t, field))
	}
	if len(pids) != 11 {
		t.Fatalf("the victim said %q", line)
	}
	waitUntil(t, "servers to end", func() bool { return !slices.ContainsFunc(pids, alive) })
	waitUntil(t, "the folders to be removed", func() bool { return isEmpty(t, dir) })
}

func TestAProgramThatIsNotInstalled(t *testing.T) {
	t.Parallel()
	r, err := services.StartProgram(t.Context(), "no-such-server")
	if err == nil {
		_ = r.Close()
	}
	if !errors.Is(err, services.ErrNotInstalled) {
		t.Errorf("got %v, want ErrNotInstalled", err)
	}
	r, err = services.StartProgram(t.Context(), "redis-server", "--maxmemory", "64mb")
	mustBeInstalled(t, err)
	defer func() { _ = r.Close() }()
	do(t, "Kill", r.Kill)
	do(t, "StartEmpty", r.StartEmpty)
}
