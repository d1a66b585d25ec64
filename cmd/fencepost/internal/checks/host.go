package checks

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// host looks at the machine that this program runs on. It should be one that runs workers.
func (r *run) host(ctx context.Context) {
	r.all(ctx, Host, []check{{name: "clock_source", look: r.clockSource}})
}

// clockSource looks at what the kernel tells the time by. Every call under a lease reads the clock.
func (r *run) clockSource(context.Context) ([]finding, error) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(r.limits.clockSources, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	current := read("current_clocksource")
	if current == "" {
		return skipped("", "this system does not say what it tells the time by")
	}
	const do = "choose another: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource (there are: "
	switch {
	case current == "jiffies" || current == "refined-jiffies":
		return fault(do+read("available_clocksource")+")", "the clock source is %s, which is off by milliseconds and "+
			"drifts", current)
	case slices.Contains([]string{"acpi_pm", "hpet", "pit", "xen"}, current):
		return warning(do+read("available_clocksource")+")", "the clock source is %s, which is slow to read", current)
	}
	return fine("the clock source is %s", current)
}
