//go:build !unix

package held

import "time"

// cpu is not known here.
func cpu() time.Duration { return 0 }
