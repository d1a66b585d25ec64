package process

import "runtime"

// OnThread calls start and then wait, unless start returned an error, which OnThread returns. Both run on one thread
// that does nothing else until wait returns: the kernel regards the thread that started a child as its parent. A child
// that must die with its parent is started and waited for this way.
func OnThread(start func() error, wait func()) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}
