package services

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// envRequire lists, separated by commas, the ways whose tests must all run.
const envRequire = "FENCEPOST_REQUIRE"

// Required returns the ways that FENCEPOST_REQUIRE names. A test that needs one of them and does not have it fails;
// other tests that lack what they need are skipped. It is for builds on machines where those ways are known to work.
func Required() ([]Way, error) {
	var ways []Way
	for word := range strings.SplitSeq(os.Getenv(envRequire), ",") {
		switch w := Way(strings.TrimSpace(word)); w {
		case "":
		case WayURL, WayDocker, WayLocal:
			ways = append(ways, w)
		default:
			return nil, fmt.Errorf("%s names %q; the ways are url, docker and local", envRequire, word)
		}
	}
	return ways, nil
}

// RequireError wraps the reason why a test lacks its servers, if FENCEPOST_REQUIRE names one of the ways that could
// provide them. Otherwise it returns nil, and the test may be skipped.
func RequireError(reason error, ways ...Way) error {
	required, err := Required()
	if err != nil {
		return err
	}
	for _, w := range ways {
		if slices.Contains(required, w) {
			return fmt.Errorf("%s names %s, and %w", envRequire, w, reason)
		}
	}
	return nil
}
