// Package browser opens the page of a comparison, and that of fencepost serve, in headless Chromium. It contains only
// tests. It is a module of its own, because the library's module should not require what drives a browser.
//
// The tests need a program chromium (on Debian: apt-get install chromium). Under CI=true they fail without it.
package browser
