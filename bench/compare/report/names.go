package report

// The names of modes, workloads and faults, in reports and on the command line.
const (
	ModeNone            = "none"
	ModeRedisLock       = "redis-lock"
	ModeRedisLease      = "redis-lease"
	ModeRedisQuorum     = "redis-quorum"
	ModeAdvisoryXact    = "advisory-xact"
	ModeAdvisorySession = "advisory-session"
	ModeForUpdate       = "for-update"
	ModeOptimistic      = "optimistic"
	ModeUnique          = "unique"

	WorkloadCounter  = "counter"
	WorkloadTransfer = "transfer"
	WorkloadInvoice  = "invoice"
	WorkloadBatch    = "batch"
	WorkloadHandOff  = "hand-off"

	FaultNone              = "none"
	FaultPause             = "pause"
	FaultRedisRestartEmpty = "redis-restart-empty"
	FaultRedisFailover     = "redis-failover"
	FaultCutRedis          = "cut-redis"
	FaultCutPostgres       = "cut-postgres"
	FaultCommitReplyLost   = "commit-reply-lost"
	FaultBackendKilled     = "backend-killed"
	FaultClockJump         = "clock-jump"
)

// Named is a name with what it stands for, in words for a reader who meets it for the first time.
type Named struct {
	Name, Meaning string
}

// Modes returns all names of modes, in the order of the tables.
func Modes() []string { return names(ModesExplained()) }

// Workloads returns all names of workloads, in the order of the tables.
func Workloads() []string { return names(WorkloadsExplained()) }

// Faults returns all names of faults, in the order of the tables.
func Faults() []string { return names(FaultsExplained()) }

func names(explained []Named) []string {
	all := make([]string, 0, len(explained))
	for _, n := range explained {
		all = append(all, n.Name)
	}
	return all
}

// ModesExplained returns the modes, in the order of the tables.
func ModesExplained() []Named {
	return []Named{
		{ModeNone, "Read, add one, write: nobody is kept out, and the last write wins."},
		{
			ModeRedisLock,
			"The common recipe: SET NX PX to lock, compare and delete to unlock. No renewal, no token, no fence.",
		},
		{
			ModeRedisLease,
			"fencepost over one Redis: a lease with a token, renewed, and writes that PostgreSQL compares with the fence.",
		},
		{ModeRedisQuorum, "The same over a majority of independent Redis servers."},
		{ModeAdvisoryXact, "fencepost over an advisory lock that one transaction takes and gives back; no Redis."},
		{ModeAdvisorySession, "fencepost over an advisory lock of a session of its own, with the fence; no Redis."},
		{ModeForUpdate, "SELECT … FOR UPDATE in the transaction that writes."},
		{ModeOptimistic, "A version column that the write compares; on a conflict all is read again."},
		{ModeUnique, "A unique constraint, for work that only inserts."},
	}
}

// WorkloadsExplained returns the workloads, in the order of the tables.
func WorkloadsExplained() []Named {
	return []Named{
		{WorkloadCounter, "Read one row, add one, write it back. Every update that was lost is missing from the count."},
		{WorkloadTransfer, "Take from one row and give to another; the sum must hold."},
		{
			WorkloadInvoice,
			"Insert one invoice for each number; a second one is a duplicate, which is the damage here: nothing is lost by it.",
		},
		{WorkloadBatch, "Change many rows in one go."},
		{WorkloadHandOff, "All workers want the same row all the time."},
	}
}

// FaultsExplained returns the faults, in the order of the tables.
func FaultsExplained() []Named {
	return []Named{
		{FaultNone, "Nothing goes wrong."},
		{
			FaultPause,
			"A worker's process is stopped between reading and writing, for longer than a lease lasts, and then goes on.",
		},
		{FaultRedisRestartEmpty, "Redis is killed and comes back empty; of a quorum, all servers at once."},
		{
			FaultRedisFailover,
			"The primary of Redis is lost, and a replica that lags behind takes its place; of a quorum, one server is lost.",
		},
		{FaultCutRedis, "The network between one worker and Redis is cut."},
		{FaultCutPostgres, "The network between one worker and PostgreSQL is cut for longer than a lease lasts."},
		{FaultCommitReplyLost, "PostgreSQL commits, and the reply to COMMIT never arrives."},
		{FaultBackendKilled, "The PostgreSQL backends that serve a worker are terminated."},
		{FaultClockJump, "The clock that one worker reads as its wall clock steps by an hour, and back."},
	}
}
