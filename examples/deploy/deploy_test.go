package deploy_test

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/jackc/pgx/v5"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	if err := os.Setenv("BILLING_PASSWORD", password); err != nil { // roles.sql reads it
		panic(err)
	}
	testenv.Main(m)
}

const password = `it's a "secret"`

// buildTool builds the command-line tool for a test.
func buildTool(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fencepost")
	cmd := exec.CommandContext(t.Context(), "../../scripts/build.sh", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tool: %v: %s", err, out)
	}
	return path
}

// database is an empty database with an owner, which may create a schema, and the service's role.
type database struct {
	pool           *pgx.Conn
	owner, billing string // addresses
	role           string // of the service
	tool           string // the command-line tool
}

func newDatabase(t *testing.T) database {
	t.Helper()
	address := testenv.EmptyDatabase(t)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	d := database{pool: conn, owner: address, role: conn.Config().Database + "_billing", tool: buildTool(t)}
	quoted := pgx.Identifier{d.role}.Sanitize()
	d.exec(t, `CREATE ROLE `+quoted)
	t.Cleanup(func() {
		d.exec(t, `DROP OWNED BY `+quoted+`; DROP ROLE `+quoted)
		_ = conn.Close(context.Background())
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address does not parse")
	}
	query := u.Query()
	query.Set("role", d.role)
	u.RawQuery = query.Encode()
	d.billing = u.String()
	return d
}

func (d database) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := d.pool.Exec(context.Background(), sql); err != nil { // also after the test's context has ended
		t.Fatal(err)
	}
}

// run runs the tool as a container would, with nothing but its own environment. The role billing of the files is the
// test's own.
func (d database) run(t *testing.T, address string, args []string) (status int, said string) {
	t.Helper()
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "billing", d.role)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.tool, args...)
	cmd.Env = []string{"FENCEPOST_POSTGRES_URL=" + address}
	out, _ := cmd.CombinedOutput() // the exit status has the outcome
	return cmd.ProcessState.ExitCode(), string(out)
}

// decode reads a file of Kubernetes. A field that its type does not have is an error.
func decode[T any](t *testing.T, path string) (object T) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return object
}

// addressOf returns the address that a container gets from its secret.
func (d database) addressOf(t *testing.T, c corev1.Container) string {
	t.Helper()
	if len(c.Env) != 1 || c.Env[0].Name != "FENCEPOST_POSTGRES_URL" || c.Env[0].ValueFrom.SecretKeyRef.Key != "url" {
		t.Fatalf("the container %s has the environment %+v", c.Name, c.Env)
	}
	addresses := map[string]string{"fencepost-owner": d.owner, "billing": d.billing}
	return addresses[c.Env[0].ValueFrom.SecretKeyRef.Name]
}

// The pods wait while anything is missing: first the schema, later a migration. The job brings it.
func TestThePodsWaitForTheJob(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	job, deployment := decode[batchv1.Job](t, "job.yaml"), decode[appsv1.Deployment](t, "deployment.yaml")
	pod := deployment.Spec.Template.Spec
	waiter := pod.InitContainers[0]
	if len(pod.InitContainers) != 1 || pod.RestartPolicy != "" && pod.RestartPolicy != corev1.RestartPolicyAlways {
		t.Fatalf("the pod would not start its init container again: %+v", pod)
	}
	runJob := func() {
		t.Helper()
		for _, c := range append(job.Spec.Template.Spec.InitContainers, job.Spec.Template.Spec.Containers...) {
			if status, said := d.run(t, d.addressOf(t, c), c.Args); status != 0 {
				t.Fatalf("%s ends with %d: %s", c.Name, status, said)
			}
		}
	}
	if status, said := d.run(t, d.addressOf(t, waiter), waiter.Args); status == 0 {
		t.Errorf("the pods start without the schema: %s", said)
	}
	runJob()
	if status, said := d.run(t, d.addressOf(t, waiter), waiter.Args); status != 0 {
		t.Errorf("after the job the pods still wait: %d, %s", status, said)
	}
	// As a release with one migration more finds it: the pods of the old release still serve, and the new ones wait.
	down := []string{"migrate", "down", "--yes"}
	if status, said := d.run(t, d.owner, down); status != 0 {
		t.Fatal(said)
	}
	d.exec(t, `GRANT USAGE ON SCHEMA fencepost TO `+pgx.Identifier{d.role}.Sanitize())
	d.exec(t, `GRANT SELECT ON fencepost.goose_version TO `+pgx.Identifier{d.role}.Sanitize())
	if status, said := d.run(t, d.addressOf(t, waiter), waiter.Args); status != 3 {
		t.Errorf("with migrations pending the pods' question ends with %d: %s", status, said)
	}
	runJob()
	runJob() // again, without harm
	if status, said := d.run(t, d.addressOf(t, waiter), waiter.Args); status != 0 {
		t.Errorf("after the second job the pods still wait: %d, %s", status, said)
	}
}

// The service's role owns nothing, and has the password that Compose was given.
func TestTheRoleOfTheServiceCanLogIn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	address := testenv.EmptyDatabase(t)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	role := conn.Config().Database + "_login"
	sql := strings.ReplaceAll(string(text), "ROLE billing", "ROLE "+pgx.Identifier{role}.Sanitize())
	if said := testenv.Restore(t, address, sql); said != "" {
		t.Fatal(said)
	}
	defer func() {
		if _, err := conn.Exec(context.Background(), `DROP ROLE `+pgx.Identifier{role}.Sanitize()); err != nil {
			t.Error(err)
		}
	}()
	config := conn.Config().Copy()
	config.User, config.Password = role, password
	theirs, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = theirs.Close(context.Background()) }()
	const may = `SELECT rolcanlogin AND NOT rolsuper AND NOT rolcreatedb FROM pg_roles WHERE rolname = current_user`
	var plain bool
	if err := theirs.QueryRow(t.Context(), may).Scan(&plain); err != nil || !plain {
		t.Errorf("a plain role: %t, %v", plain, err)
	}
}

// Compose starts the commands in the order of what they depend on.
func TestComposeRunsItsCommandsInOrder(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithName("deploy"),
		cli.WithEnv([]string{"OWNER_PASSWORD=o", "BILLING_PASSWORD=b"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := newDatabase(t)
	var ran []string
	var start func(name string)
	start = func(name string) {
		if slices.Contains(ran, name) {
			return
		}
		service := project.Services[name]
		for _, before := range service.GetDependencies() {
			if before != "postgres" && service.DependsOn[before].Condition != types.ServiceConditionCompletedSuccessfully {
				t.Errorf("%s does not wait for the end of %s", name, before)
			}
			start(before)
		}
		ran = append(ran, name)
		if name == "postgres" {
			return
		}
		address := map[string]string{
			"postgres://owner:o@postgres/billing?sslmode=disable":   d.owner,
			"postgres://billing:b@postgres/billing?sslmode=disable": d.billing,
		}[*service.Environment["FENCEPOST_POSTGRES_URL"]]
		if status, said := d.run(t, address, service.Command); address == "" || status != 0 {
			t.Errorf("%s at %q ends with %d: %s", name, address, status, said)
		}
	}
	start("billing")
	if want := []string{"postgres", "migrate", "grant", "billing"}; !slices.Equal(ran, want) {
		t.Errorf("it ran %q, want %q", ran, want)
	}
}
