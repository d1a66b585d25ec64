package demo

import (
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/token"
)

// Row is the invoice.
type Row struct {
	Value string      `json:"value"`
	Token token.Token `json:"token"` // last_fencing_token
}

func (r Row) String() string { return fmt.Sprintf("%q, token %d", r.Value, r.Token) }

// Outcome is the outcome of a write.
type Outcome string

// The outcomes.
const (
	Accepted Outcome = "accepted"
	Refused  Outcome = "refused" // with fence.ErrStale
)

// End is how a play ended.
type End struct {
	Row        Row     `json:"row"`
	StaleWrite Outcome `json:"stale_write"` // A's write after it was resumed
	// StaleToken and CurrentToken are the tokens in PostgreSQL's refusal.
	StaleToken   token.Token `json:"stale_token,omitzero"`
	CurrentToken token.Token `json:"current_token,omitzero"`
	// A and B are the tokens that the workers were granted.
	A token.Token `json:"-"`
	B token.Token `json:"-"`
}

// Result is how the plays ended. A play that did not end is nil.
type Result struct {
	Unfenced *End `json:"unfenced,omitempty"`
	Fenced   *End `json:"fenced,omitempty"`
}

func (r *Result) set(kind Kind, end *End) {
	if kind == Unfenced {
		r.Unfenced = end
	} else {
		r.Fenced = end
	}
}

// Check compares both ends with the story. Its error matches ErrNotAsTold and says what differs.
func (r *Result) Check() error {
	return errors.Join(r.Unfenced.check(Unfenced), r.Fenced.check(Fenced))
}

func (e *End) check(kind Kind) error {
	if e == nil {
		return fmt.Errorf("%w: the %s play has none", ErrNotAsTold, kind)
	}
	told := End{A: e.A, B: e.B, StaleWrite: Accepted, Row: Row{Value: paidBy(nameA), Token: e.A}}
	if kind == Fenced {
		told.StaleWrite, told.StaleToken, told.CurrentToken = Refused, e.A, e.B
		told.Row = Row{Value: paidBy(nameB), Token: e.B}
	}
	if !e.A.Valid() || e.A >= e.B {
		return fmt.Errorf("%w: %s: token %d was granted before %d", ErrNotAsTold, kind, e.A, e.B)
	}
	if *e != told {
		return fmt.Errorf("%w: %s: want %v, got %v", ErrNotAsTold, kind, told, *e)
	}
	return nil
}

func (e End) String() string {
	if e.StaleWrite == Refused {
		return fmt.Sprintf(
			"a stale write refused (token %d, current %d) and the row at %v",
			e.StaleToken,
			e.CurrentToken,
			e.Row,
		)
	}
	return fmt.Sprintf("a stale write %s and the row at %v", e.StaleWrite, e.Row)
}
