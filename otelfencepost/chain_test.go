package otelfencepost_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/otelfencepost"
)

// recording returns events with each field set. Each notes its field's name and its arguments.
func recording(who string, told *[]string, given *[][]reflect.Value) fencepost.Events {
	var e fencepost.Events
	fields := reflect.ValueOf(&e).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		fields.Field(i).Set(reflect.MakeFunc(fields.Field(i).Type(), func(args []reflect.Value) []reflect.Value {
			*told, *given = append(*told, who+" "+name), append(*given, args)
			return nil
		}))
	}
	return e
}

// Each field is called with its arguments, in the order of the chained events.
func TestChainPassesEachEventOn(t *testing.T) {
	t.Parallel()
	var told []string
	var given [][]reflect.Value
	chained := otelfencepost.Chain(recording("a", &told, &given), fencepost.Events{}, recording("b", &told, &given))
	fields := reflect.ValueOf(chained)
	for i := range fields.NumField() {
		name, kind := fields.Type().Field(i).Name, fields.Field(i).Type()
		if fields.Field(i).IsNil() {
			t.Errorf("%s is not passed on", name)
			continue
		}
		told, given = nil, nil
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for n := 1; n < kind.NumIn(); n++ {
			args = append(args, reflect.New(kind.In(n)).Elem())
		}
		fields.Field(i).Call(args)
		all := slices.Equal(told, []string{"a " + name, "b " + name})
		if !all || len(given[0]) != len(args) || len(given[1]) != len(args) {
			t.Errorf("%s: %q, %d of %d arguments", name, told, len(given[0]), len(args))
		}
	}
}

// What nobody sets costs nothing.
func TestChainLeavesUnsetFieldsNil(t *testing.T) {
	t.Parallel()
	one := fencepost.Events{OutcomeUnknown: func(context.Context, []string, error) {}}
	for set, chained := range map[int]fencepost.Events{
		0: otelfencepost.Chain(fencepost.Events{}, fencepost.Events{}), 1: otelfencepost.Chain(fencepost.Events{}, one),
	} {
		n, fields := 0, reflect.ValueOf(chained)
		for i := range fields.NumField() {
			if !fields.Field(i).IsNil() {
				n++
			}
		}
		if n != set {
			t.Errorf("%d fields are set, want %d", n, set)
		}
	}
}

// New sets each field, so that an event that is new in the library is not overlooked here.
func TestNewSetsEachField(t *testing.T) {
	t.Parallel()
	events, err := otelfencepost.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	fields := reflect.ValueOf(events)
	for i := range fields.NumField() {
		if fields.Field(i).IsNil() {
			t.Errorf("%s is nil", fields.Type().Field(i).Name)
		}
	}
}
