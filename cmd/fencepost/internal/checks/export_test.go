package checks

import (
	"time"
)

// Limits are what a real server reaches only after weeks, or what belongs to the host.
type Limits struct {
	Now          func() time.Time
	ClockSources string
	Dead, IDs    int64
	Old          time.Duration
}

// Edited returns options whose run has other limits. What is zero stays as it is.
func Edited(opts Options, to Limits) *Options {
	opts.edit = func(l *limits) {
		if to.Now != nil {
			l.now = to.Now
		}
		if to.ClockSources != "" {
			l.clockSources = to.ClockSources
		}
		if to.Dead != 0 {
			l.dead = to.Dead
		}
		if to.IDs != 0 {
			l.ids = to.IDs
		}
		if to.Old != 0 {
			l.old = to.Old
		}
	}
	return &opts
}

// JudgeLatency, JudgeClock, PostgresVersion and RedisVersion judge what was measured or read.
func JudgeLatency(middle, longest, ttl time.Duration) Level {
	return first(judgeLatency(middle, longest, ttl))
}

func JudgeClock(a, b, width time.Duration) Level { return first(judgeClock(a, b, width)) }

func PostgresVersion(name string, number int) Level { return first(postgresVersion(name, number)) }

func RedisVersion(info map[string]string) Level { return first(redisVersion(info)) }

func first(list []finding, err error) Level {
	if err != nil {
		return Skipped
	}
	return list[0].level
}
