-- The role that the service logs in as. It owns nothing.
\getenv password BILLING_PASSWORD
CREATE ROLE billing LOGIN PASSWORD :'password';
