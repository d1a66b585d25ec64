package pgtable

import (
	"database/sql/driver"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// CheckKey returns nil for a key that a row of the table can have, as far as that can be decided without its types.
// Otherwise it returns an error that matches ErrInvalid: a wrong number of values, or a NULL. NULL is any value that
// pgx sends as NULL: nil, a nil pointer, a value that is not Valid, a driver.Valuer that returns nil. NULL equals
// nothing, so no row has such a key, and a statement's answer (no such row, or a violated constraint) would depend on
// the statement.
func CheckKey(t Table, key Key) error {
	if len(key) != len(t.Key) {
		return pgerr.Invalidf("a key of %s has %d values, not %d", t, len(t.Key), len(key))
	}
	for i, value := range key {
		if IsNull(value) {
			return pgerr.Invalidf("key column %q of %s: a key value is NULL", t.Key[i], t)
		}
	}
	return nil
}

// IsNull reports whether pgx would send a value as NULL. It is on the path of every write: values of plain types cost
// nothing.
func IsNull(value any) bool {
	switch v := value.(type) {
	case string, int, int64, int32, int16, int8, uint, uint64, uint32, uint16, uint8, bool, float64, float32,
		time.Time, [16]byte:
		return false
	case nil:
		return true
	case driver.Valuer:
		return nullValuer(v)
	case interface{ IsNull() bool }: // ranges of pgtype
		return isNilPointer(v) || v.IsNull()
	case pgtype.ArrayGetter:
		return isNilPointer(v) || v.Dimensions() == nil
	}
	if valid, known := validOf(value); known {
		return !valid
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || IsNull(v.Elem().Interface())
	case reflect.Slice, reflect.Map:
		return v.IsNil()
	}
	return false
}

// nullValuer asks the value itself. A nil pointer is NULL unless its own method decides otherwise. If the method
// belongs to the pointed-to type, calling it would panic.
func nullValuer(v driver.Valuer) bool {
	if isNilPointer(v) && reflect.TypeOf(v).Elem().Implements(reflect.TypeFor[driver.Valuer]()) {
		return true
	}
	sent, err := v.Value()
	if _, further := sent.(driver.Valuer); further || err != nil {
		return false // pgx handles or reports it
	}
	return IsNull(sent)
}

// validOf asks types that have a form only for pgx, as far as keys use them.
func validOf(value any) (valid, known bool) {
	if isNilPointer(value) {
		return false, false
	}
	switch v := value.(type) {
	case pgtype.TextValuer:
		text, err := v.TextValue()
		return text.Valid || err != nil, true
	case pgtype.Int64Valuer:
		n, err := v.Int64Value()
		return n.Valid || err != nil, true
	case pgtype.UUIDValuer:
		id, err := v.UUIDValue()
		return id.Valid || err != nil, true
	case pgtype.NumericValuer:
		n, err := v.NumericValue()
		return n.Valid || err != nil, true
	case pgtype.TimestamptzValuer:
		at, err := v.TimestamptzValue()
		return at.Valid || err != nil, true
	case pgtype.TimestampValuer:
		at, err := v.TimestampValue()
		return at.Valid || err != nil, true
	case pgtype.DateValuer:
		day, err := v.DateValue()
		return day.Valid || err != nil, true
	}
	return false, false
}

func isNilPointer(value any) bool {
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
