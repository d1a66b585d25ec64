//go:build !unix

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
)

func supported() error {
	return fmt.Errorf("to stop and resume a process takes Unix signals: %w", errors.ErrUnsupported)
}

func (p *Process) launch([]string, []string, []*os.File) error { return supported() }

// Stop is not supported.
func (p *Process) Stop(context.Context) error { return supported() }

// Resume is not supported.
func (p *Process) Resume() error { return supported() }

// StopSelf is not supported.
func StopSelf() error { return supported() }
