// Package operate looks at leases, fences and the ledger of a namespace for operators, and changes what operators may
// change. It shows no nonce. It puts side by side what Redis says, who may work now, and what PostgreSQL says, whose
// token counts.
package operate
