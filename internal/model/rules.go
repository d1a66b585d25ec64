package model

// Rules are the parts of the protocol that a search may leave out. The zero value is the protocol as it is.
type Rules struct {
	// NoClaim: the grant alone counts. Writes compare the row's token and nothing else.
	NoClaim bool
	// ClaimAgain: a claim may have the fence's own token, under another nonce (<= in the place of <).
	ClaimAgain bool
	// NoGuard: a claimed worker writes without looking at the fence.
	NoGuard bool
	// ClaimBarges: a claim does not wait for transactions that have passed the guard.
	ClaimBarges bool
	// NoReissue: a worker whose claim was refused gives up, and the counter stays as it is.
	NoReissue bool
	// ReadFirst: what is read before the claim counts as read under it.
	ReadFirst bool
	// ForgetFences: fences may be deleted.
	ForgetFences bool
	// OldFloor: a claim that creates a fence compares with a floor that it has read before it looked for the fence, and
	// takes no lock: a naive floor. So does one that reads the floor under a snapshot from before its claim.
	OldFloor bool
	// NoBucket: a collection does not lock the bucket.
	NoBucket bool
	// NoFold: a collection deletes the fence, and the floor stays as it is.
	NoFold bool
	// OldFold: a collection folds the token that the fence had before it locked the fence.
	OldFold bool
	// CollectBarges: a collection deletes fences that open transactions have locked.
	CollectBarges bool
	// NoCompare: writes do not compare the row's token.
	NoCompare bool
}

// Bounds limit a search.
type Bounds struct {
	// Workers is how many workers there are, 1 to 3.
	Workers int
	// Faults is how many things may go wrong. A lost reply is not counted.
	Faults int
	// Collections is how many times the fence may be collected. Its bucket has other fences, and one of them may be
	// collected in its place: then the floor rises by one.
	Collections int
}

// Violation is a promise that is broken.
type Violation string

// The promises.
const (
	Unique   Violation = "I1, I2: a claim committed at or below an earlier one"
	Fenced   Violation = "I3: a write committed under an overtaken claim"
	Live     Violation = "I5: the next worker cannot claim"
	NoLost   Violation = "I7: another's write between a read and its write"
	RowFalls Violation = "a row's token fell"
)

// Result is what a search has found.
type Result struct {
	// States is how many different states there are.
	States int
	// Broken has the first violation of each kind, with the steps that lead to it.
	Broken map[Violation][]string
	// Claims, Reissues and Writes are how often each happened, on all paths: a search without them proves nothing.
	Claims, Reissues, Writes int
	// Collections is how many fences were collected, and Floors how many claims a floor refused.
	Collections, Floors int
}
