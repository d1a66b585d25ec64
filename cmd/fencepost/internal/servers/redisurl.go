package servers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// kind says what an address leads to.
type kind int

const (
	either   kind = iota // a single server or a node of a cluster: the server says which
	sentinel             // the primary that sentinels name
	cluster
)

// address is the address of one Redis, parsed. Nothing has been sent yet.
type address struct {
	kind     kind
	hosts    []string       // of sentinels, or of nodes
	options  *redis.Options // for the first host: user, password, database, TLS, time limits
	master   string         // the sentinels' name for the primary
	user     string         // of the sentinels
	password string         // of the sentinels
}

// forms are the forms of an address, for errors and help.
const forms = "redis://, rediss:// (TLS), redis+sentinel://HOST,HOST/?master=NAME or redis+cluster://HOST,HOST"

var errAddress = errors.New("not a Redis address; the forms are " + forms)

// parseRedis reads an address. The forms are
//
//	redis://user:password@host:port/database
//	redis+sentinel://user:password@host:port,host:port/database?master=name&sentinel_user=…&sentinel_password=…
//	redis+cluster://user:password@host:port,host:port
//	unix://user:password@/path?db=0
//
// and the first three with rediss instead of redis, for TLS. With TLS, ca, cert and key name files in PEM. All other
// parameters are those of go-redis.
func parseRedis(text string) (address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	base, variant, _ := strings.Cut(scheme, "+")
	var a address
	switch variant {
	case "":
	case "sentinel":
		a.kind = sentinel
	case "cluster":
		a.kind = cluster
	default:
		return address{}, errAddress
	}
	if !found || !slices.Contains([]string{"redis", "rediss", "unix"}, base) || base == "unix" && variant != "" {
		return address{}, errAddress
	}
	rest, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return address{}, errAddress // the cause quotes it
	}
	if base != "unix" {
		rest = a.takeHosts(rest)
	}
	a.master, a.user, a.password = take(values, "master"), take(values, "sentinel_user"), take(values, "sentinel_password")
	files := [3]string{take(values, "ca"), take(values, "cert"), take(values, "key")}
	if a.options, err = redis.ParseURL(base + "://" + rest + "?" + values.Encode()); err != nil {
		return address{}, errAddress // the cause quotes it
	}
	switch {
	case a.kind == either && len(a.hosts) > 1:
		return address{}, errors.New("a Redis address names several hosts, so it needs redis+sentinel:// or redis+cluster://")
	case (a.master != "") != (a.kind == sentinel):
		return address{}, errors.New("master=NAME goes with redis+sentinel://, and is needed there")
	case a.kind == cluster && a.options.DB != 0:
		return address{}, errors.New("a Redis Cluster has database 0 alone")
	}
	return a, withFiles(a.options.TLSConfig, files)
}

// takeHosts records the hosts of an address and returns the address with the first host alone.
func (a *address) takeHosts(rest string) string {
	list, path, _ := strings.Cut(rest, "/")
	userinfo := ""
	if at := strings.LastIndex(list, "@"); at >= 0 {
		userinfo, list = list[:at+1], list[at+1:]
	}
	port := "6379"
	if a.kind == sentinel {
		port = "26379"
	}
	for _, host := range strings.Split(list, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		a.hosts = append(a.hosts, host)
	}
	return userinfo + a.hosts[0] + "/" + path
}

// take removes a parameter that go-redis does not know.
func take(values url.Values, name string) string {
	defer values.Del(name)
	return values.Get(name)
}

// withFiles reads the files of a TLS configuration.
func withFiles(config *tls.Config, files [3]string) error {
	ca, cert, key := files[0], files[1], files[2]
	if ca+cert+key == "" {
		return nil
	}
	if config == nil {
		return errors.New("ca, cert and key go with rediss://")
	}
	if ca != "" {
		pem, err := os.ReadFile(ca) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return errors.New("the file that ca names holds no certificate in PEM")
		}
	}
	if cert+key == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// failover are the options of a client that asks sentinels.
func (a address) failover() *redis.FailoverOptions {
	o := a.options
	return &redis.FailoverOptions{
		MasterName: a.master, SentinelAddrs: a.hosts, SentinelUsername: a.user, SentinelPassword: a.password,
		Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig, ClientName: o.ClientName,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		MaxRetries: o.MaxRetries, PoolSize: o.PoolSize,
	}
}

// cluster are the options of a client of a cluster.
func (a address) cluster() *redis.ClusterOptions {
	o := a.options
	return &redis.ClusterOptions{
		Addrs: a.hosts, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, ClientName: o.ClientName,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		MaxRetries: o.MaxRetries, PoolSize: o.PoolSize,
	}
}
