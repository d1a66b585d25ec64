package library

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

// The names of what the library's calls send, sent by hand: with the plain clients, without deadlines, renewals,
// retries, events or a check of what came back, and without the check that goes with COMMIT. What the library's own
// code costs is above it, and what the protocol costs is below it.
const (
	sentDoName      = "what Store.Do sends, by hand"
	sentLockedName  = "what AdvisoryTx.Do sends, by hand"
	sentAcquireName = "what Store.Acquire + Release send, by hand"
)

// sentStore returns the three.
func sentStore(ctx context.Context, s Servers) ([]measure.Candidate, error) {
	pair, err := recordPair(ctx, s)
	if err != nil {
		return nil, err
	}
	do, err := sentDo(ctx, s, pair)
	if err != nil {
		return nil, err
	}
	locked, err := sentLocked(ctx, s)
	return []measure.Candidate{do, locked, sentAcquire(s, pair)}, err
}

// sender sends what belongs to one resource, for one worker.
type sender struct {
	servers          Servers
	resource         string // as the fence has it
	acquire, release recorded
}

func newSender(s Servers, pair recordedPair, name string) *sender {
	return &sender{
		servers: s, resource: s.Name + ":" + name, acquire: pair.acquire.of(name),
		release: pair.release.of(name),
	}
}

// leased makes a call between the two scripts of a lease.
func (s *sender) leased(ctx context.Context, call func(tok int64, nonce string) error) error {
	nonce := newNonce()
	tok, err := s.servers.Redis.Do(ctx, s.acquire.under(nonce)...).Int64()
	if err != nil {
		return err
	}
	if err := call(tok, nonce); err != nil {
		return err
	}
	return s.servers.Redis.Do(ctx, s.release.under(nonce)...).Err()
}

func newNonce() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

func sentAcquire(s Servers, pair recordedPair) measure.Candidate {
	return measure.Candidate{Name: sentAcquireName, Worker: func(worker int) func(context.Context) error {
		sender := newSender(s, pair, fmt.Sprintf("sent-held-%d", worker))
		const claim = `SELECT claimed FROM fencepost.claim_now($1, $2, $3, '')`
		return func(ctx context.Context) error {
			return sender.leased(ctx, func(tok int64, nonce string) error {
				var claimed bool
				err := s.Pool.QueryRow(ctx, claim, sender.resource, tok, nonce).Scan(&claimed)
				return took(claimed, err)
			})
		}
	}}
}

func took(claimed bool, err error) error {
	if err == nil && !claimed {
		err = errors.New("a claim was refused")
	}
	return err
}

func sentDo(ctx context.Context, s Servers, pair recordedPair) (measure.Candidate, error) {
	table, err := makeTable(ctx, s, "sentdone")
	return measure.Candidate{Name: sentDoName, Worker: func(worker int) func(context.Context) error {
		sender := newSender(s, pair, fmt.Sprintf("sent-done-%d", worker))
		sql, at := plainUpdate(table), newWalk(worker)
		return func(ctx context.Context) error {
			at.next()
			return sender.leased(ctx, func(tok int64, nonce string) error {
				const claim = `SELECT claimed FROM fencepost.claim_marked($1, $2, $3, '', 30000)`
				return sentTx(ctx, s, sql, at, claim, sender.resource, tok, nonce)
			})
		}
	}}, err
}

func sentLocked(ctx context.Context, s Servers) (measure.Candidate, error) {
	table, err := makeTable(ctx, s, "sentlocked")
	return measure.Candidate{Name: sentLockedName, Worker: func(worker int) func(context.Context) error {
		resource := fmt.Sprintf("%s:sent-locked-%d", s.Name, worker)
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(resource)) // never fails
		key := int64(hash.Sum64())          //nolint:gosec // any 64 bits will do
		sql, at := plainUpdate(table), newWalk(worker)
		const draw = `SELECT token > 0 FROM fencepost.draw_marked($1, $2, '', $3, 30000)`
		return func(ctx context.Context) error {
			at.next()
			return sentTx(ctx, s, sql, at, draw, resource, newNonce(), key)
		}
	}}, err
}

// sentTx begins with a statement that returns whether it has claimed, in one round trip, updates a row and commits.
func sentTx(ctx context.Context, s Servers, update string, at *walk, claim string, args ...any) error {
	conn, err := s.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var claimed bool
	var b pgx.Batch
	b.Queue(`BEGIN`)
	b.Queue(claim, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&claimed) })
	err = conn.SendBatch(ctx, &b).Close()
	if err := took(claimed, err); err != nil {
		return err
	}
	tag, err := conn.Exec(ctx, update, strconv.FormatInt(at.pass, 10), at.id)
	if err := oneRow(tag.RowsAffected(), err); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `COMMIT`)
	return err
}
