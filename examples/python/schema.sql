-- What a deployment's migrations do, in addition to fencepost's own.
CREATE SCHEMA shop;
CREATE TABLE shop.account (
    id bigint PRIMARY KEY, balance bigint NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0);
INSERT INTO shop.account (id, balance) VALUES (1, 0);
-- The protection: from here on no program writes account 1 without a claim of examples:account:1.
SELECT fencepost.protect('shop.account', 'examples', 'account:', '{id}');
