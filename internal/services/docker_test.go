package services_test

import (
	"cmp"
	"errors"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/moby/moby/api/types/container"
	engine "github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// dockerEngine ends the test unless a Docker engine answers.
func dockerEngine(t *testing.T) engine.APIClient {
	t.Helper()
	api, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		missing(t, services.WayDocker, err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

// inDocker ends the test unless a Docker engine answers and has, or can get, the images: the named ones, else those
// that `make images` builds, else the default.
func inDocker(t *testing.T) engine.APIClient {
	t.Helper()
	api := dockerEngine(t)
	for name, built := range map[string]string{
		"FENCEPOST_POSTGRES_IMAGE": "fencepost/postgres:bookworm",
		"FENCEPOST_REDIS_IMAGE":    "fencepost/redis:bookworm",
	} {
		if _, err := api.ImageInspect(t.Context(), built); err == nil {
			t.Setenv(name, cmp.Or(os.Getenv(name), built))
		}
	}
	mustServe(t, services.WayDocker)
	return api
}

// published returns the containers with a port of address published.
func published(t *testing.T, api engine.APIClient, addresses ...string) (found []container.Summary) {
	t.Helper()
	list, err := api.ContainerList(t.Context(), engine.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if slices.ContainsFunc(c.Ports, func(p container.PortSummary) bool {
			return slices.ContainsFunc(addresses, func(address string) bool {
				u, err := url.Parse(address)
				return err == nil && p.PublicPort != 0 && u.Port() == strconv.Itoa(int(p.PublicPort))
			})
		}) {
			found = append(found, c)
		}
	}
	return found
}

// TestDockerServices: both servers run in containers, on 127.0.0.1 only, with the requested settings.
func TestDockerServices(t *testing.T) {
	api := inDocker(t)
	s, err := services.Start(t.Context(), &services.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.PostgresURL)
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{"fsync": "on", "max_connections": "300"} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", setting, got, err, want)
		}
	}
	_ = conn.Close(t.Context())
	if err := client(t, s.RedisURL).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	boxes := published(t, api, s.PostgresURL, s.RedisURL)
	if len(boxes) != 2 {
		t.Fatalf("found %d containers, want 2", len(boxes))
	}
	for _, b := range boxes {
		for _, p := range b.Ports {
			if p.PublicPort != 0 && p.IP.String() != "127.0.0.1" {
				t.Errorf("port %d is published on %v", p.PrivatePort, p.IP)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(published(t, api, s.PostgresURL, s.RedisURL)); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}

// Disposable data is kept in the container's memory.
func TestDockerDataInMemory(t *testing.T) {
	inDocker(t)
	if services.MemoryPlace() == "" {
		missing(t, services.WayDocker, errors.New("there is too little memory, or it is not known how much"))
	}
	if data := dataOf(t, start(t, services.WayDocker)); data != "/fencepost/data" {
		t.Errorf("the data is in %s", data)
	}
}

func TestDockerNothingIsLeftBehind(t *testing.T) {
	api := inDocker(t)
	v := startVictim(t, "SIGKILL", services.WayDocker)
	addresses := []string{v.services.PostgresURL, v.services.RedisURL}
	if n := len(published(t, api, addresses...)); n != 2 {
		t.Fatalf("found %d containers, want 2", n)
	}
	v.end()
	waitUntil(t, "containers to be removed", func() bool { return len(published(t, api, addresses...)) == 0 })
}

func TestDockerRedisCanBeHurt(t *testing.T) {
	inDocker(t)
	hurtRedis(t)
}

// TestDockerWithoutImage: an engine that cannot provide an image is passed over with the reason, unless it is forced.
func TestDockerWithoutImage(t *testing.T) {
	mustServe(t, services.WayLocal) // it is used instead
	dockerEngine(t)
	t.Setenv("FENCEPOST_SERVICES", "docker")
	t.Setenv("FENCEPOST_POSTGRES_IMAGE", "127.0.0.1:1/none:none")
	_, err := services.Start(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1/none:none") {
		t.Fatalf("got %v, want an error that names the image", err)
	}
	t.Setenv("FENCEPOST_SERVICES", "")
	t.Setenv("FENCEPOST_POSTGRES_URL", "")
	t.Setenv("FENCEPOST_REDIS_URL", "")
	s, err := services.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if s.Way != services.WayLocal {
		t.Errorf("took %s, want local", s.Way)
	}
	docker := s.Passed[len(s.Passed)-1]
	if docker.Way != services.WayDocker || !strings.Contains(docker.Err.Error(), "none:none") {
		t.Errorf("passed over %v, want docker with its reason", docker)
	}
}

// TestDockerServerThatEndsIsNotWaitedFor: its log says why.
func TestDockerServerThatEndsIsNotWaitedFor(t *testing.T) {
	inDocker(t)
	r, err := services.StartRedis(t.Context(), "--no-such-option", "1")
	if err == nil {
		_ = r.Close()
		t.Fatal("a server with an unknown option started")
	}
	if !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("the error does not quote the log: %v", err)
	}
}
