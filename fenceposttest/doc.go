// Package fenceposttest is for the tests of services that use fencepost. It gives a test a [fencepost.Store] on real
// servers and injects the faults that the fence is there for: another worker takes over, a lease is lost, the reply to
// a COMMIT does not arrive, Redis forgets, the clock steps.
//
// A test binary uses it with one line, which must be all that TestMain does:
//
//	func TestMain(m *testing.M) { fenceposttest.Main(m) }
//
// A test that a worker survives a takeover then reads:
//
//	func TestMyWorkerSurvivesATakeover(t *testing.T) {
//		env := fenceposttest.New(t, nil)
//		w := newWorker(env.Store)
//		w.beforeWrite = func() { env.TakeOver("invoice:7") }
//		err := w.pay(t.Context(), "invoice:7")
//		if !errors.Is(err, fencepost.ErrStale) {
//			t.Errorf("an overtaken worker wrote: %v", err)
//		}
//	}
//
// # Where the servers come from
//
// The first test that asks for servers finds or starts them, and they serve all tests of the binary. Each test has a
// database of its own, with fencepost's migrations, and a namespace of its own in Redis. Three ways are tried in this
// order, or only the one that FENCEPOST_SERVICES names:
//
//   - url: the addresses in FENCEPOST_POSTGRES_URL and FENCEPOST_REDIS_URL. The user of the first must be allowed to
//     create databases.
//   - docker: containers of the images FENCEPOST_POSTGRES_IMAGE and FENCEPOST_REDIS_IMAGE, by testcontainers-go.
//   - local: installed programs, as child processes on free loopback ports.
//
// If no way works, the test is skipped with the reason; with CI=true in the environment it fails. With
// [Options].Advisory a test needs no Redis. Servers that the package starts end with the test binary, however it ends.
package fenceposttest
