// SPDX-License-Identifier: BSD-2-Clause
#include "suite/page.h"

#include "suite/report.h"

namespace conformance {
namespace {

constexpr const char* style = R"(<style>
:root{--line:#d5d9de;--soft:#f4f6f8;--text:#1c2127;--dim:#5c6670}
*{box-sizing:border-box}[hidden]{display:none!important}
body{font:15px/1.45 system-ui,sans-serif;color:var(--text);background:#fff;margin:0 auto;max-width:70rem;padding:1rem}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}
p.dim,.dim{color:var(--dim)}
.counts{display:flex;flex-wrap:wrap;gap:.5rem;margin:.8rem 0}
.counts b{display:block;font-size:1.3rem}.counts span{border:1px solid var(--line);border-radius:6px;padding:.3rem .8rem}
.bar{display:flex;height:10px;border-radius:5px;overflow:hidden;margin:.4rem 0 1rem;background:var(--line)}
.bar i{display:block;height:100%}
.filters{position:sticky;top:0;background:#fff;padding:.5rem 0;border-bottom:1px solid var(--line);display:flex;flex-wrap:wrap;gap:.8rem;align-items:center}
.filters label{white-space:nowrap;font-size:.85rem}
.filters select{font:inherit;max-width:100%;padding:.3rem}
nav{font-size:.85rem}nav details{border:0}nav summary{display:list-item}nav a{display:inline-block;margin:.15rem .9rem .15rem 0}
.in p{margin:.35rem 0}
section,h2{scroll-margin-top:4rem}
.filters input[type=search]{flex:1 1 12rem;font:inherit;padding:.3rem .5rem;border:1px solid var(--line);border-radius:6px}
details{border-bottom:1px solid var(--line)}
summary{display:flex;gap:.6rem;padding:.35rem 0;cursor:pointer;align-items:baseline;flex-wrap:wrap}
summary code{flex:1 1 14rem;overflow-wrap:anywhere}
.v{font-size:.72rem;font-weight:600;border-radius:4px;padding:.1rem .45rem;white-space:nowrap;color:#fff}
.CONFORMS{background:#1a7f4b}.DEVIATES{background:#c0272d}.NOT-CLAIMED{background:#6b7280}.NOT-TESTED{background:#b7791f}.EXPECTED{background:#9b5a9e}
.in{padding:.1rem 0 .7rem 1rem}
pre{background:var(--soft);padding:.6rem;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.82rem;border-radius:6px}
table{border-collapse:collapse;width:100%;font-size:.88rem}td,th{border-bottom:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}
.rows{table-layout:fixed}
.facts{columns:2 18rem;font-size:.85rem}.facts div{display:flex;justify-content:space-between;gap:1rem;border-bottom:1px dotted var(--line);break-inside:avoid}
.scroll{overflow-x:auto}
@media(max-width:40rem){body{padding:.6rem}.filters{position:static}.filters input[type=search]{flex:1 1 100%}.filters select{flex:1 1 40%}summary{flex-wrap:nowrap}summary code{flex:1 1 0}.in{padding-left:0}.facts{columns:1}.facts span:last-child{text-align:right;overflow-wrap:anywhere}}
@media print{.filters,nav{display:none}body{max-width:none;font-size:9.5pt;padding:0}details::details-content{content-visibility:visible;display:block}.bar{print-color-adjust:exact}.in p,pre{margin:.15rem 0}pre{padding:.3rem .6rem}.in{padding-bottom:.3rem}details,.facts div{break-inside:avoid}h2{break-after:avoid}pre{overflow:visible}.v{color:#000!important;background:none!important;border:1px solid #000}}
</style>)";

constexpr const char* script = R"(<script>
(function(){
 var all=function(what){return [].slice.call(document.querySelectorAll(what))};
 var filters=document.querySelector('.filters'),opened=[];
 if(filters){
  var boxes=all('.filters input[type=checkbox]'),lists=all('.filters select');
  var search=document.querySelector('.filters input[type=search]');
  var show=function(){
   var on={};boxes.forEach(function(b){on[b.value]=b.checked});
   var words=search.value.toLowerCase();
   all('[data-v]').forEach(function(row){
    row.hidden=row.dataset.v in on&&!on[row.dataset.v]
     ||lists.some(function(l){return l.value&&row.dataset[l.dataset.by]!==l.value})
     ||!!words&&row.textContent.toLowerCase().indexOf(words)<0});
   all('section').forEach(function(s){s.hidden=!s.querySelector('[data-v]:not([hidden])')})};
  boxes.concat(lists,search).forEach(function(i){i.addEventListener('input',show)});
  filters.hidden=false;
 }
 addEventListener('beforeprint',function(){
  opened=all('details:not([open])');opened.forEach(function(d){d.open=true})});
 addEventListener('afterprint',function(){opened.forEach(function(d){d.open=false});opened=[]});
})();
</script>)";

}  // namespace

std::string page_begin(const std::string& title) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
         escaped(title) + "</title>\n" + style + "\n</head><body>\n<h1>" + escaped(title) + "</h1>\n";
}

std::string page_end() { return std::string(script) + "\n</body></html>\n"; }

}  // namespace conformance
