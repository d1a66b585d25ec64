package services

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

const (
	pollEvery   = 25 * time.Millisecond
	askPatience = 5 * time.Second // one attempt; a server that is starting may swallow it
)

// poll calls ask until it succeeds, ctx ends, or gone reports after a failure that waiting is useless (nil: never). The
// error is the last one of ask, which says more than "deadline exceeded".
func poll(ctx context.Context, gone func() bool, ask func(context.Context) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, askPatience)
		err := ask(once)
		cancel()
		if err == nil || gone != nil && gone() {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// askPostgres runs a query over a new connection and returns the server's version. A listening port or a log line
// proves nothing: images start a first server for their set-up, and log "ready" twice.
func askPostgres(ctx context.Context, url string) (version string, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return "", errors.New("not a PostgreSQL address")
	}
	// A pooler would keep a prepared statement for its next client.
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&version); err != nil {
		return "", err
	}
	version, _, _ = strings.Cut(version, " ")
	return version, nil
}

type redisInfo struct {
	version string
	pid     int // as the server sees it; containers number processes separately
}

// errLoading means that the server answers but is still reading its data.
var errLoading = errors.New("the server is still loading its data")

func askRedis(ctx context.Context, url string) (redisInfo, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return redisInfo{}, errors.New("not a Redis address")
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	// CLIENT SETINFO and the like are useless on a connection this short, and old servers answer them with errors.
	o.DisableIdentity = true
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return redisInfo{}, err
	}
	text, err := client.Info(ctx).Result()
	if err != nil {
		return redisInfo{}, err
	}
	facts := parseInfo(text)
	if facts["loading"] == "1" {
		return redisInfo{}, errLoading
	}
	info := redisInfo{version: facts["redis_version"]}
	if v := facts["valkey_version"]; v != "" {
		info.version = "(Valkey) " + v
	}
	info.pid, _ = strconv.Atoi(facts["process_id"])
	return info, nil
}

func parseInfo(text string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[k] = v
		}
	}
	return facts
}
