// Package pgtable describes fenced tables: a table's name, key and token column, what the catalog says about it, the
// rule that protects it, and the highest tokens in its rows.
package pgtable
