CREATE SCHEMA IF NOT EXISTS shop;

CREATE TABLE IF NOT EXISTS shop.account (
    id                 bigint PRIMARY KEY,
    balance            bigint NOT NULL,
    last_fencing_token bigint NOT NULL DEFAULT 0
);
