package web

import "github.com/prometheus/client_golang/prometheus"

// metrics makes Prometheus' metrics of the latest shot. Their names begin with fencepost_site_ and go on as those of
// otelfencepost do: what workers say of themselves is fencepost_lease_held, and a sum over workers must not count these
// as well. No metric has a resource as a label: there may be millions.
type metrics struct {
	site *Site
	list []metric
}

type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*shot) float64
	page  bool // needs a page
}

func (s *Site) registry() *prometheus.Registry {
	labels := prometheus.Labels{"namespace": s.o.Namespace}
	m := &metrics{site: s}
	add := func(name, help string, kind prometheus.ValueType, page bool, value func(*shot) float64) {
		m.list = append(m.list, metric{prometheus.NewDesc("fencepost_site_"+name, help, nil, labels), kind, value, page})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add("up", "Whether the last look at both servers succeeded", gauge, false, func(s *shot) float64 {
		if s.Page == nil || s.Problem != nil {
			return 0
		}
		return 1
	})
	add("looks_total", "Looks at both servers", counter, false, func(s *shot) float64 { return float64(s.Looks) })
	add("look_failures_total", "Looks that failed", counter, false, func(s *shot) float64 { return float64(s.Failures) })
	add("look_duration_seconds", "How long the last look took that succeeded", gauge, true,
		func(s *shot) float64 { return float64(s.Page.TookMS) / 1000 })
	add("look_timestamp_seconds", "When the last look ended that succeeded", gauge, true,
		func(s *shot) float64 { return float64(s.Page.At.UnixMilli()) / 1000 })
	add(
		"lease_held",
		"Leases that somebody holds",
		gauge,
		true,
		func(s *shot) float64 { return float64(s.Page.Totals.Held) },
	)
	add("lease_reserved", "Leases that are kept for a waiter", gauge, true,
		func(s *shot) float64 { return float64(s.Page.Totals.Reserved) })
	add("lease_overtaken", "Leases that are held with a token below the fence", gauge, true,
		func(s *shot) float64 { return float64(s.Page.Totals.Overtaken) })
	add("lease_unusable", "Leases with a bad key, or without a majority of a quorum", gauge, true,
		func(s *shot) float64 { return float64(s.Page.Totals.Other) })
	add("lease_waiting", "Workers that wait for a lease", gauge, true,
		func(s *shot) float64 { return float64(s.Page.Totals.Waiting) })
	add("lease_waited_for", "Leases that workers wait for", gauge, true,
		func(s *shot) float64 { return float64(s.Page.Totals.WaitedFor) })
	add("lease_handoffs_total", "Hand-offs that were seen; there may have been more between two looks", counter, true,
		func(s *shot) float64 { return float64(s.Page.Totals.HandOffs) })
	add(
		"lease_turn_seconds",
		"Median time from a claim to the next one of the resource, of the latest that were seen",
		gauge,
		true,
		func(s *shot) float64 { return float64(s.Page.Totals.TurnMS) / 1000 },
	)
	add("claims_total", "Claims in all namespaces of the database, as PostgreSQL counts them", counter, true,
		func(s *shot) float64 { return float64(s.Page.Totals.Claims) })
	add("fences", "Fences in all namespaces of the database, about", gauge, true,
		func(s *shot) float64 { return float64(s.Page.Totals.Fences) })
	add("truncated", "Whether there are more leases than --limit", gauge, true, func(s *shot) float64 {
		if s.Page.More {
			return 1
		}
		return 0
	})
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	return r
}

// Describe is a prometheus.Collector's.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range m.list {
		to <- one.desc
	}
}

// Collect is a prometheus.Collector's.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	seen := m.site.latest.Load()
	for _, one := range m.list {
		if !one.page || seen.Page != nil {
			to <- prometheus.MustNewConstMetric(one.desc, one.kind, one.value(seen))
		}
	}
}
