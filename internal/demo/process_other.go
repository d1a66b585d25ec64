//go:build !unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
)

func supported() error {
	return fmt.Errorf("the demo stops and resumes a process, which takes Unix signals: %w", errors.ErrUnsupported)
}

func (p *process) launch([]string, []*os.File) error { return supported() }

func (p *process) stop(context.Context) error { return supported() }

func (p *process) resume() error { return supported() }
