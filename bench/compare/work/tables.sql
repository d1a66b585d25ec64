CREATE SCHEMA compare;

CREATE TABLE compare.item (
	id bigint PRIMARY KEY,
	value bigint NOT NULL,
	initial bigint NOT NULL,           -- what value was at first
	version bigint NOT NULL DEFAULT 0  -- one more with each change
) WITH (fillfactor = 50);

-- Nothing but coordination keeps a number from being used twice here ...
CREATE TABLE compare.invoice (number bigint NOT NULL, operation uuid NOT NULL);
CREATE INDEX ON compare.invoice (number);

-- ... and here the database does.
CREATE TABLE compare.invoice_unique (number bigint PRIMARY KEY, operation uuid NOT NULL);

-- One line for each change of a row, written by the statement that makes the change.
CREATE TABLE compare.journal (operation uuid NOT NULL, row bigint NOT NULL, delta bigint NOT NULL);

-- The idempotency keys of the modes that bring none of their own.
CREATE TABLE compare.done (operation uuid PRIMARY KEY);
