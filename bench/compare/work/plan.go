package work

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
)

// How many rows the workloads share. Few enough for workers to meet, and more than one where it is not the
// workload's point that all meet at one.
const (
	counterRows    = 4
	groups         = 2  // of a transfer and of a batch, each with a resource of its own
	rowsOfTransfer = 8  // of a group: the lower half gives, the upper half takes
	rowsOfBatch    = 50 // of a group: all of them are changed
)

// Plan is the operations of one worker, drawn from a seed.
type Plan struct {
	Workload Workload
	Keyed    bool
	Seed     uint64
	Worker   int // numbered from 0
}

// Items returns how many rows of compare.item a workload needs, with the ids from 1 on.
func Items(w Workload) int {
	switch w {
	case Counter:
		return counterRows
	case Transfer:
		return groups * rowsOfTransfer
	case Batch:
		return groups * rowsOfBatch
	case HandOff:
		return 1
	case Invoice:
	}
	return 0
}

// Operations returns a function that returns the plan's next operation each time. The same plan makes the
// same operations. It is not safe for concurrent use.
//
// A row's deltas all have one size and one sign, or lost updates could not be counted.
func (p Plan) Operations() func() *Operation {
	random := rand.New(rand.NewPCG(p.Seed, uint64(p.Worker)))
	count := int64(0)
	return func() *Operation {
		count++
		o := &Operation{ID: uuid(random), Workload: p.Workload, Keyed: p.Keyed}
		p.choose(o, random, count)
		return o
	}
}

func (p Plan) choose(o *Operation, random *rand.Rand, count int64) {
	switch p.Workload {
	case Transfer:
		group := random.Int64N(groups)
		from := group*rowsOfTransfer + 1 + random.Int64N(rowsOfTransfer/2)
		to := group*rowsOfTransfer + 1 + rowsOfTransfer/2 + random.Int64N(rowsOfTransfer/2)
		o.Rows, o.Deltas = []int64{from, to}, []int64{-1, 1}
		o.Resource = fmt.Sprintf("accounts:%d", group)
	case Invoice:
		// Every worker wants every invoice: whoever comes second finds it made.
		o.Rows, o.Deltas = []int64{count}, []int64{1}
		o.Resource = fmt.Sprintf("invoice:%d", count)
	case Batch:
		group := random.Int64N(groups)
		for i := range int64(rowsOfBatch) {
			o.Rows = append(o.Rows, group*rowsOfBatch+1+i)
		}
		o.Deltas = slices.Repeat([]int64{1}, rowsOfBatch)
		o.Resource = fmt.Sprintf("batch:%d", group)
	case Counter, HandOff:
		row := 1 + random.Int64N(int64(Items(p.Workload)))
		o.Rows, o.Deltas = []int64{row}, []int64{1}
		o.Resource = fmt.Sprintf("counter:%d", row)
	}
}

// uuid draws a version 4 uuid.
func uuid(random *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
