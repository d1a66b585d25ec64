//go:build unix

package cli_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// The commands of an operator and run, over a place whose addresses lead to one of the topologies.
func (p *place) operates() {
	t := p.t
	t.Helper()
	want := func(status int, says, command string, rest ...string) {
		t.Helper()
		got := run(t, p.with(command, rest...)...)
		if got.status != status || !strings.Contains(got.out+got.errOut, says) ||
			strings.Contains(got.out+got.errOut, "hunter2") {
			t.Errorf("%s: %+v, want %d and %q", command, got, status, says)
		}
	}
	want(0, "1\n", "run -r invoice:1 --", "sh", "-c", "echo $FENCEPOST_TOKEN")
	want(0, "2\n", "run -r invoice:1 --once k --", "sh", "-c", "echo $FENCEPOST_TOKEN")
	held, errOut, _ := p.start(
		p.with("run -r invoice:2 --ttl 3s --label host-a/1 --", "sh", "-c", "echo; cat >/dev/null")...)
	want(75, `by "host-a/1"`, "run -r invoice:2 --wait 0s --", "true")
	want(0, "invoice:2  host-a/1", "lease ls")
	want(0, `held by "host-a/1", token 1`, "lease show invoice:2")
	want(0, `Token 1 is the one that counts: "host-a/1" claimed it`, "why invoice:2")
	want(0, "invoice:2  host-a/1", "top")
	want(0, `invoice:2  held by "host-a/1", token 1, fence 1  (now)`, "lease watch invoice:2 --for 300ms --interval 100ms")
	want(77, "nobody has overtaken it", "lease release invoice:2")
	want(0, "the lease is free", "lease release invoice:2 --force")
	want(0, "overtaken by token 2", "why invoice:2 --token 1")
	_ = held.Wait() // it is told with its next renewal
	if status := held.ProcessState.ExitCode(); status != 79 || !strings.Contains(errOut.String(), "lease lost") {
		t.Errorf("the holder that was overtaken ended with %d: %s", status, errOut)
	}
	for _, r := range []string{"invoice:1", "invoice:2"} {
		if n, err := p.rdb.Del(t.Context(), "fencepost:"+p.namespace+":{"+r+"}:token").Result(); n != 1 || err != nil {
			t.Errorf("the counter of %s: %d, %v", r, n, err)
		}
	}
	want(0, "2 fences, 2 counters below their fences", "reseed --dry-run")
	want(0, "2 fences, 2 counters raised", "reseed")
	want(0, "2 fences, 0 counters raised", "reseed")
	want(0, "3\n", "run -r invoice:2 --", "sh", "-c", "echo $FENCEPOST_TOKEN")
}

func TestCommandsBehindSentinel(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t), testenv.Sentinel(t, nil)
	p.rdb = testenv.SentinelClient(t, s, nil)
	p.redis = "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/0?master=" + s.Master()
	p.operates()
	got := run(t, "lease", "ls", "--database="+p.database, "--redis=redis+sentinel://"+s.Addrs()[0]+"/?master=hunter2")
	if got.status != 69 || strings.Contains(got.errOut, "hunter2@") {
		t.Errorf("of a primary that the sentinels do not know: %+v", got)
	}
}

func TestCommandsOnACluster(t *testing.T) {
	t.Parallel()
	p, c := newPlace(t), testenv.Cluster(t, nil)
	p.rdb = testenv.ClusterClient(t, c, nil)
	p.redis = "redis+cluster://" + strings.Join(c.Addrs()[:2], ",")
	p.operates()
	// One node's plain address is enough: the server says that it is part of a cluster.
	p.redis = "redis://" + c.Addrs()[1]
	if got := run(t, p.with("run -r invoice:9 --", "echo", "ran")...); got.status != 0 || got.out != "ran\n" {
		t.Errorf("%+v", got)
	}
}

// Certificates are checked in both directions: those of the servers by the command, as its addresses say.
func TestCommandsOverTLS(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ca, config := certificate(t)
	p.redis = "rediss://" + behindTLS(t, config, hostOf(t, p.redis), nil) + "/0?ca=" + ca
	database, err := url.Parse(p.database)
	if err != nil {
		t.Fatal(err)
	}
	database.Host = behindTLS(t, config, database.Host, answerSSLRequest)
	with := func(ca string) string {
		database.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca}}.Encode()
		return database.String()
	}
	p.database = with(ca)
	p.operates()

	other, _ := certificate(t)
	for name, addresses := range map[string][]string{
		"a Redis of another authority":      {p.database, strings.ReplaceAll(p.redis, ca, other)},
		"a PostgreSQL of another authority": {with(other), p.redis},
	} {
		got := run(t, "lease", "ls", "--database="+addresses[0], "--redis="+addresses[1])
		if got.status != 69 || !strings.Contains(got.errOut, "certificate") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// certificate returns the file of an authority, and what a server at 127.0.0.1 needs that it signed: itself.
func certificate(t *testing.T) (ca string, config *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return ca, &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
	}
}

// behindTLS ends the TLS of connections and passes what is in them on to a server, as stunnel does. It returns its
// address. begin, if not nil, is what goes before the handshake.
func behindTLS(t *testing.T, config *tls.Config, server string, begin func(net.Conn) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		all.Wait()
	})
	pass := func(raw net.Conn) {
		defer func() { _ = raw.Close() }()
		stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
		defer stop()
		if begin != nil && begin(raw) != nil {
			return
		}
		back, err := new(net.Dialer).DialContext(ctx, "tcp", server)
		if err != nil {
			return
		}
		defer func() { _ = back.Close() }()
		front := tls.Server(raw, config)
		all.Go(func() {
			_, _ = io.Copy(back, front)
			_ = back.Close()
		})
		_, _ = io.Copy(front, back)
		_ = front.Close()
	}
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				all.Go(func() { pass(conn) })
			}
		}
	})
	return listener.Addr().String()
}

// answerSSLRequest says yes to PostgreSQL's question whether there is TLS. A cancel request, which asks as well, is
// passed on like all others.
func answerSSLRequest(conn net.Conn) error {
	if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil {
		return err
	}
	_, err := conn.Write([]byte("S"))
	return err
}
