// Package browser opens the page of a comparison in headless Chromium. It is a module of its own, for what drives a browser
// is nothing that the library's own module should name; and it holds nothing but tests.
//
// They want a program chromium (on Debian: apt-get install chromium). Under CI=true they fail without one.
package browser
