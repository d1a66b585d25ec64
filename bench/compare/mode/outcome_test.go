package mode_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want mode.Outcome
	}{
		{nil, mode.Accepted},
		{mode.ErrConflict, mode.Refused},
		{fmt.Errorf("write: %w", fencepost.ErrStale), mode.Refused},
		{fencepost.ErrLost, mode.Refused},
		{errors.Join(context.DeadlineExceeded, fencepost.ErrHeld), mode.Refused},
		{fencepost.ErrTokenRegressed, mode.Refused},
		{fencepost.ErrOutcomeUnknown, mode.Unknown},
		{errors.Join(fencepost.ErrLost, fencepost.ErrOutcomeUnknown), mode.Unknown},
		{fencepost.ErrUnavailable, mode.Unavailable},
		{io.ErrUnexpectedEOF, mode.Unavailable},
		{context.DeadlineExceeded, mode.Unavailable},
		{&pgconn.PgError{Code: "57P01"}, mode.Unavailable},
		{&pgconn.PgError{Code: "40P01"}, mode.Unavailable},
		{&pgconn.PgError{Code: "42P01"}, mode.Broken},
		{&pgconn.PgError{Code: "23505"}, mode.Broken},
		{fencepost.ErrInvalid, mode.Broken},
		{work.ErrMissing, mode.Broken},
	} {
		if got := mode.OutcomeOf(tt.err); got != tt.want {
			t.Errorf("%v is %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestRefusedByPostgres(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{mode.ErrConflict, true},
		{fmt.Errorf("write: %w", fencepost.ErrStale), true},
		{errors.Join(fencepost.ErrLost, fencepost.ErrStale), true},
		{fencepost.ErrTokenRegressed, true},
		{fencepost.ErrLost, false},
		{fencepost.ErrHeld, false},
		{errors.Join(fencepost.ErrStale, fencepost.ErrOutcomeUnknown), false},
		{fencepost.ErrUnavailable, false},
	} {
		if got := mode.RefusedByPostgres(tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

// scripted is a mode whose attempts end as the test says.
type scripted struct{ ends []error }

func (s *scripted) Run(context.Context, *work.Operation) error {
	end := s.ends[0]
	s.ends = s.ends[1:]
	return end
}
func (*scripted) ConnectionsHeld() int { return 0 }
func (*scripted) Close()               {}

func TestPersistTriesUntilItIsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ends    []error
		want    mode.Outcome
		watched []mode.Outcome
	}{
		{[]error{nil}, mode.Accepted, nil},
		{
			[]error{mode.ErrConflict, fencepost.ErrOutcomeUnknown, io.EOF, nil},
			mode.Accepted,
			[]mode.Outcome{mode.Refused, mode.Unknown, mode.Unavailable},
		},
		{[]error{io.EOF, fencepost.ErrInvalid}, mode.Broken, []mode.Outcome{mode.Unavailable, mode.Broken}},
	} {
		m := &scripted{ends: tt.ends}
		var watched []mode.Outcome
		got, _ := mode.Persist(
			t.Context(),
			m,
			&work.Operation{},
			time.Second,
			func(o mode.Outcome, _ error) { watched = append(watched, o) },
		)
		if got != tt.want || fmt.Sprint(watched) != fmt.Sprint(tt.watched) || len(m.ends) != 0 {
			t.Errorf(
				"got %s after %v, want %s after %v; %d attempts were not made",
				got,
				watched,
				tt.want,
				tt.watched,
				len(m.ends),
			)
		}
	}
}

func TestPersistEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := mode.Persist(ctx, &scripted{ends: []error{io.EOF}}, &work.Operation{}, time.Second, nil)
	if got != mode.Unavailable || !errors.Is(err, io.EOF) {
		t.Errorf("got %s, %v", got, err)
	}
}
