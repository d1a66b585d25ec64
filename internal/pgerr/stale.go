package pgerr

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/token"
)

// StaleError says what refused a token.
type StaleError struct {
	// Resource is the fence that refused. If a row refused, it is the row's table, or the row's resource if a protected
	// table (fencepost.protect) refused.
	Resource string
	Token    token.Token // the token refused
	// Current is the higher token seen; 0 if there is no fence at all. It equals Token if another grant has claimed the
	// same number.
	Current token.Token
	// Row reports that the row carries Current, rather than the fence.
	Row bool
	// Floor reports that the resource has no fence, and that Current is the highest token of the fences that have been
	// collected, of this resource or of others that share its bucket. See docs/operating.md, "Collecting fences".
	Floor bool
	// Label is that of the claim that the fence carries: who overtook. It is empty if the claim was made without a
	// label, if a row or the floor refused, or if the schema is of an older release.
	Label string
	// ClaimedAt is when that claim was made, by PostgreSQL's clock. It is zero if a row or the floor refused, or if the
	// schema is of an older release.
	ClaimedAt time.Time
}

func (e *StaleError) Error() string {
	text := fmt.Sprintf("%v: %q: token %d, ", ErrStale, e.Resource, e.Token)
	switch {
	case e.Row:
		return text + fmt.Sprintf("row at %d", e.Current)
	case e.Floor:
		return text + fmt.Sprintf("its fence is gone, and fences up to %d have been collected", e.Current)
	}
	return text + fmt.Sprintf("fence at %d", e.Current) + e.overtaker()
}

// overtaker says who claimed, and when.
func (e *StaleError) overtaker() string {
	var b strings.Builder
	if e.Label != "" || !e.ClaimedAt.IsZero() {
		b.WriteString(", claimed")
	}
	if e.Label != "" {
		fmt.Fprintf(&b, " by %q", e.Label)
	}
	if !e.ClaimedAt.IsZero() {
		b.WriteString(" at " + e.ClaimedAt.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Refusal is what stands in the way of a claim: whose claim the fence carries, or that there is only a floor.
type Refusal struct {
	Floor     bool
	Label     string
	ClaimedAt time.Time
}

// ReadRefusal reads what the SQL function overtaken returns. Anything else, such as what another release says, is no
// refusal.
func ReadRefusal(text string) Refusal {
	var said struct {
		Floor     bool   `json:"floor"`
		Label     string `json:"label"`
		ClaimedAt string `json:"claimed_at"`
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return Refusal{}
	}
	at, err := time.Parse(time.RFC3339Nano, said.ClaimedAt)
	switch {
	case err == nil && !said.Floor:
		return Refusal{Label: said.Label, ClaimedAt: at.UTC()}
	case said.Floor && said.ClaimedAt == "" && said.Label == "":
		return Refusal{Floor: true}
	}
	return Refusal{}
}

// Stale makes the error of a claim that a fence or a floor has refused.
func (r Refusal) Stale(resource string, tok, current token.Token) *StaleError {
	return &StaleError{
		Resource: resource, Token: tok, Current: current, Floor: r.Floor, Label: r.Label, ClaimedAt: r.ClaimedAt,
	}
}

// staleFrom reads the DETAIL that fencepost.enter and the trigger of a protected table give with this SQLSTATE.
func staleFrom(server *pgconn.PgError) error {
	var detail struct {
		Resource string `json:"resource"`
		Token    token.Token
		Current  json.RawMessage
		Row      bool
	}
	if err := json.Unmarshal([]byte(server.Detail), &detail); err != nil {
		return fmt.Errorf("%w: %w", ErrStale, server)
	}
	stale := ReadRefusal(server.Detail).Stale(detail.Resource, detail.Token, 0)
	stale.Row = detail.Row
	// No fence at all is "0", which is not a token.
	if err := json.Unmarshal(detail.Current, &stale.Current); err != nil {
		stale.Current = 0
	}
	return stale
}
