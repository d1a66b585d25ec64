-- What a deployment's migrations do, in addition to fencepost's own.
\set ON_ERROR_STOP on
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.account (
    id bigint PRIMARY KEY, balance bigint NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0);
-- The protection: from here on no program writes account 1 without a claim of examples:account:1.
SELECT fencepost.protect('shop.account', 'examples', 'account:', '{id}');
