# The command-line tool and nothing else. scripts/tool-image.sh builds it from a folder with the three files below, so
# nothing is downloaded.
FROM scratch
# For TLS to servers whose certificates come from a public authority.
COPY ca-certificates.crt /etc/ssl/certs/
# User and group 65532 have a name, and own nothing.
COPY passwd /etc/
COPY fencepost /
USER 65532:65532
ENTRYPOINT ["/fencepost"]
