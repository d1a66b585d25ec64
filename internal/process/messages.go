package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// Send writes a message to the child's standard input, as one line of JSON. If the child has ended, Send returns no
// error; how the child ended is known once Done is closed.
func (p *Process) Send(message any) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	if err := p.encoder.Encode(message); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("write to process %d: %w", p.pid, err)
	}
	return nil
}

// Call sends a request and reads one reply. ctx bounds the call. If ctx ends it, requests and replies are out of step,
// and the child can only be ended. Calls take turns. If the child ends instead of replying, the error is io.EOF.
func (p *Process) Call(ctx context.Context, request, reply any) error {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	if err := p.Send(request); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.out.SetReadDeadline(time.Now()) })
	defer stop()
	err := p.decoder.Decode(reply)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Receive calls take with each message from the child, in order, until take returns false, the child's output ends or a
// message is not a T. It returns an error only in the last case.
func Receive[T any](p *Process, take func(T) bool) error {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	for {
		var message T
		if err := p.decoder.Decode(&message); IsEnd(err) {
			return nil
		} else if err != nil {
			return err
		}
		if !take(message) {
			return nil
		}
	}
}

// IsEnd reports whether err is the end of a pipe, even in the middle of a message, rather than an invalid message.
func IsEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed)
}

// ErrNoParent means that the child's standard input has ended: the parent has exited, and no work is left.
var ErrNoParent = errors.New("standard input has ended")

// Orders is for a child. It calls take with each message of its parent, in order. It returns ErrNoParent when the
// messages end, an error if a message is not a T, or the error of take.
func Orders[T any](in *json.Decoder, take func(T) error) error {
	for {
		var message T
		if err := in.Decode(&message); IsEnd(err) {
			return ErrNoParent
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		if err := take(message); err != nil {
			return err
		}
	}
}
