-- The rows that the workers write, and the journal in which a trigger keeps what was committed.
CREATE SCHEMA torture;

CREATE TABLE torture.part (
    grp text NOT NULL,
    id text NOT NULL,
    n bigint NOT NULL,
    mark text NOT NULL,
    last_fencing_token bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (grp, id)
);

CREATE TABLE torture.journal (
    seq bigserial PRIMARY KEY,
    part text NOT NULL,
    action text NOT NULL,
    mark text NOT NULL,
    n bigint NOT NULL,
    before text NOT NULL,
    token bigint NOT NULL
);

-- What the mode without a fence has in place of the library's ledger. It has no key, as many such tables have not.
CREATE TABLE torture.done (key text NOT NULL, n bigint NOT NULL);

-- The row's lock is held when the trigger draws its number, so a row's entries are numbered in the order of its
-- changes.
CREATE FUNCTION torture.note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept torture.part := COALESCE(NEW, OLD);
BEGIN
    INSERT INTO torture.journal (part, action, mark, n, before, token) VALUES (
        kept.grp || '/' || kept.id, TG_OP,
        CASE TG_OP WHEN 'DELETE' THEN '' ELSE kept.mark END, kept.n,
        CASE TG_OP WHEN 'INSERT' THEN '' ELSE OLD.mark END, kept.last_fencing_token);
    RETURN NULL;
END $$;

CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON torture.part FOR EACH ROW EXECUTE FUNCTION torture.note();
